//! Start-up over an allgather that the C caller provides.
#![allow(unsafe_code)] // Calls the C caller's function.

use crate::gate;
use han::Exchange;
use std::error::Error;
use std::ffi::{c_int, c_void};

/// `han_allgather_function`.
pub(crate) type AllgatherFunction =
    unsafe extern "C" fn(send: *const c_void, bytes: usize, recv: *mut c_void, ctx: *mut c_void) -> c_int;

/// The ranks as C describes them.
///
/// The callback gathers blocks of equal length, so lengths are gathered before contents.
pub(crate) struct Callback {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) function: AllgatherFunction,
    pub(crate) ctx: *mut c_void,
}

impl Callback {
    /// Gathers a block of `bytes.len()` bytes, equal on all ranks, from every rank.
    fn gather(&self, bytes: &[u8]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        let total = bytes.len().checked_mul(self.size).ok_or("the ranks' blocks are too long")?;
        let mut all = vec![0_u8; total];
        let (send, recv) = (bytes.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: `send` has the block's bytes and `recv` room for all ranks' blocks, as `han.h` says;
        // the C caller vouches for the function and its context until han_finalize.
        let code = unsafe { (self.function)(send, bytes.len(), recv, self.ctx) };
        if gate::is_forked() {
            return Err("this process was forked by a rank, which alone can call han".into());
        }
        if code != 0 {
            return Err(format!("the allgather callback returned {code}").into());
        }
        Ok(all)
    }
}

impl Exchange for Callback {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Box<dyn Error + Send + Sync>> {
        let lengths = self.gather(&(bytes.len() as u64).to_ne_bytes())?;
        let lengths = lengths.chunks_exact(8).map(|length| {
            let mut word = [0; 8];
            word.copy_from_slice(length);
            usize::try_from(u64::from_ne_bytes(word))
        });
        let lengths = lengths.collect::<Result<Vec<_>, _>>()?;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if longest == 0 {
            return Ok(vec![Vec::new(); self.size]);
        }
        let mut block = bytes.to_vec();
        block.resize(longest, 0);
        let blocks = self.gather(&block)?;
        let contents = blocks.chunks_exact(longest).zip(&lengths);
        Ok(contents.map(|(block, &length)| block[..length].to_vec()).collect())
    }
}
