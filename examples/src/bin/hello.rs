//! The first program: every rank says hello, and all add up their ranks.

use han::{Context, Operator};

fn hello() -> han::Result<()> {
    let context = Context::init()?;
    let world = context.world();
    println!("hello from rank {} of {}", world.rank(), world.size());
    let mut sum = [world.rank() as u64];
    world.allreduce_in_place(&mut sum, Operator::Sum)?;
    if world.rank() == 0 {
        println!("the ranks add up to {}", sum[0]);
    }
    context.finalize()
}

fn main() {
    if let Err(error) = hello() {
        eprintln!("hello: {error}");
        std::process::exit(1);
    }
}
