//! Start and end of han in a process, and its version.
#![allow(unsafe_code)] // Exports C symbols.

use crate::abi::{Out, null};
use crate::error::{Code, Failure, Outcome, SUCCESS};
use crate::exchange::{AllgatherFunction, from_callback};
use crate::gate;
use crate::process::Process;
use han::Context;
use shm_core::sys::process::end_now;
use std::cell::Cell;
use std::ffi::{c_int, c_void};

#[unsafe(no_mangle)]
pub extern "C" fn han_init() -> c_int {
    gate::start("han_init", || Process::new(Context::init()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_init_oob(
    rank: c_int,
    size: c_int,
    allgather: Option<AllgatherFunction>,
    ctx: *mut c_void,
) -> c_int {
    gate::start("han_init_oob", || {
        let function = allgather.ok_or_else(|| null(Code::Arg, "allgather"))?;
        Process::new(Context::from_exchange(from_callback(rank, size, function, ctx)?)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_initialized(flag: Out<c_int>) -> c_int {
    if let Err(failure) = flag.check("flag") {
        return crate::error::report("han_initialized", &failure);
    }
    flag.set(c_int::from(gate::is_initialized()));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn han_finalize() -> c_int {
    gate::finish("han_finalize", nothing_in_flight, |process| {
        let Process { requests, operators, communicators, world: _, memory, context } = process;
        drop((requests, operators, communicators));
        let result = context.finalize();
        drop(memory);
        Ok(result?)
    })
}

fn nothing_in_flight(process: &Process) -> Outcome {
    let active = process.requests.iter().filter(|request| request.is_active()).count();
    if active == 0 {
        return Ok(());
    }
    let message = format!("requests are active ({active}); complete them by han_waitall first");
    Err(Failure::new(Code::Request, message))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_abort(code: c_int) -> c_int {
    let outcome = gate::call("han_abort", |process| {
        process.context.announce_abort(code, &format!("han_abort({code}) was called"));
        Ok(())
    });
    // In a process that han is not (any more, or exclusively) in, its end is a death to its peers, and to the launcher
    // if the exit status says so.
    // Of a code the system keeps eight bits, and what is no success must not become one by that.
    let looks_like_success = code & 0xff == 0;
    let code = if looks_like_success && (outcome != SUCCESS || code != 0) { 1 } else { code };
    gate::close();
    thread_local!(static EXITING: Cell<bool> = const { Cell::new(false) });
    if EXITING.replace(true) {
        end_now(code) // this is a handler of `atexit`, from which nobody may exit again
    }
    std::process::exit(code)
}

#[unsafe(no_mangle)]
pub extern "C" fn han_version(major: Out<c_int>, minor: Out<c_int>, patch: Out<c_int>) -> c_int {
    let [first, second, third] = VERSION;
    major.set(first);
    minor.set(second);
    patch.set(third);
    SUCCESS
}

/// Major, minor, patch, as in the manifest.
pub(crate) const VERSION: [c_int; 3] = [
    number(env!("CARGO_PKG_VERSION_MAJOR")),
    number(env!("CARGO_PKG_VERSION_MINOR")),
    number(env!("CARGO_PKG_VERSION_PATCH")),
];

const fn number(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("a version of Cargo consists of numbers"),
    }
}
