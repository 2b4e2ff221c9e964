//! The first program: every rank says hello, and all add up their ranks.

use han::{Context, Operator};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// A line on standard output; `println!` panics where that is full, or closed.
fn print(line: &str) -> Result<(), Box<dyn Error>> {
    Ok(writeln!(io::stdout(), "{line}").map_err(|error| format!("cannot write to standard output: {error}"))?)
}

fn hello() -> Result<(), Box<dyn Error>> {
    let context = Context::init()?;
    let world = context.world();
    print(&format!("hello from rank {} of {}", world.rank(), world.size()))?;
    let mut sum = [world.rank() as u64];
    world.allreduce_in_place(&mut sum, Operator::Sum)?;
    if world.rank() == 0 {
        print(&format!("the ranks add up to {}", sum[0]))?;
    }
    context.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    match hello() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "hello: {error}");
            ExitCode::FAILURE
        }
    }
}
