//! Start-up over an allgather that the C caller provides.
#![allow(unsafe_code)] // Calls the C caller's function.

use crate::error::{Code, Failure, Outcome};
use crate::gate;
use han::Exchange;
use han::bootstrap::OutOfBand;
use std::ffi::{c_int, c_void};

/// `han_allgather_function`.
pub(crate) type AllgatherFunction =
    unsafe extern "C" fn(send: *const c_void, bytes: usize, recv: *mut c_void, ctx: *mut c_void) -> c_int;

/// Most ranks of a world, more than machines have: a number that cannot be is told before memory is taken for it.
const MOST_RANKS: usize = 1 << 20;

/// The ranks as C describes them.
pub(crate) fn from_callback(
    rank: c_int,
    size: c_int,
    function: AllgatherFunction,
    ctx: *mut c_void,
) -> Outcome<Box<dyn Exchange>> {
    let gather = move |send: &[u8], recv: &mut [u8]| {
        // SAFETY: `send` has the block's bytes and `recv` room for all ranks' blocks, as `han.h` says;
        // the C caller vouches for the function and its context until han_finalize.
        let code = unsafe { function(send.as_ptr().cast(), send.len(), recv.as_mut_ptr().cast(), ctx) };
        if gate::is_forked() {
            return Err("this process was forked by a rank, which alone can call han".into());
        }
        if code != 0 {
            return Err(format!("the allgather callback returned {code}").into());
        }
        Ok(())
    };
    if let (Ok(rank), Ok(size @ ..=MOST_RANKS)) = (usize::try_from(rank), usize::try_from(size))
        // SAFETY: that the callback gathers every rank's block of the same call is what `han.h` asks for.
        && let Ok(exchange) = unsafe { OutOfBand::new(rank, size, gather) }
    {
        return Ok(Box::new(exchange));
    }
    let message = format!("rank {rank} of {size}: a world has 1 to {MOST_RANKS} ranks, which count from 0");
    Err(Failure::new(Code::Arg, message))
}
