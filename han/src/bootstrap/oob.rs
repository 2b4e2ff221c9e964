//! Out-of-band start-up: the caller brings rank, size and an allgather of its own.
//!
//! What callers have (`MPI_Allgather`, a socket layer, a file system) gathers blocks of one length, so
//! an exchange is two calls: the lengths first, then the bytes padded to the longest.
#![allow(unsafe_code)] // hands the caller's promise on

use shm_core::exchange::{Exchange, ExchangeError};

use super::error::{Error, Result};

/// An [`Exchange`] over a function that gathers equally long blocks.
pub struct OutOfBand<F> {
    rank: usize,
    size: usize,
    allgather: F,
}

impl<F> std::fmt::Debug for OutOfBand<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutOfBand").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

/// Largest block that one rank may announce; a longer one is a broken callback.
const MAX_BLOCK_BYTES: usize = 16 << 20;

impl<F> OutOfBand<F>
where
    F: FnMut(&[u8], &mut [u8]) -> std::result::Result<(), ExchangeError>,
{
    /// `allgather(send, recv)` must place every rank's `send` into `recv` in rank order;
    /// `recv.len() == size * send.len()`, and `send.len()` is the same on every rank.
    ///
    /// # Errors
    /// [`Error::Environment`] when there is no such rank.
    ///
    /// # Safety
    /// `rank` is another one on each of the `size` ranks, and where `allgather` returns `Ok` it has done what it must: it has
    /// brought every rank's block of the same call of it, byte by byte. Ranks tell each other processes and addresses so
    /// ([`Exchange`]).
    pub unsafe fn new(rank: usize, size: usize, allgather: F) -> Result<Self> {
        if rank >= size {
            return Err(Error::Environment(format!("rank {rank} of {size} does not exist; ranks count from 0")));
        }
        Ok(Self { rank, size, allgather })
    }

    /// Room for a block of every rank; what the callback says decides how much, so it may be more than there is.
    fn room(&self, block_bytes: usize) -> std::result::Result<Vec<u8>, ExchangeError> {
        let (mut room, bytes) = (Vec::new(), self.size.saturating_mul(block_bytes));
        room.try_reserve_exact(bytes).map_err(|_| "no memory for the ranks' blocks")?;
        room.resize(bytes, 0);
        Ok(room)
    }

    fn lengths(&mut self, own: usize) -> std::result::Result<Vec<usize>, ExchangeError> {
        let mut all = self.room(size_of::<u64>())?;
        (self.allgather)(&(own as u64).to_le_bytes(), &mut all)?;
        let (lengths, _) = all.as_chunks::<{ size_of::<u64>() }>();
        let lengths: Vec<usize> =
            lengths.iter().map(|b| usize::try_from(u64::from_le_bytes(*b))).collect::<std::result::Result<_, _>>()?;
        if lengths[self.rank] != own {
            let got = lengths[self.rank];
            return Err(
                format!("the allgather callback returned {got} for rank {}, which sent {own}", self.rank).into()
            );
        }
        match lengths.iter().position(|bytes| *bytes > MAX_BLOCK_BYTES) {
            Some(rank) => {
                Err(format!("the allgather callback says that rank {rank} sends {} bytes", lengths[rank]).into())
            }
            None => Ok(lengths),
        }
    }
}

// SAFETY: by the promise that `new` was given, all ranks agree on the lengths, and the blocks are theirs, in rank order.
unsafe impl<F> Exchange for OutOfBand<F>
where
    F: FnMut(&[u8], &mut [u8]) -> std::result::Result<(), ExchangeError>,
{
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn allgather(&mut self, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, ExchangeError> {
        let lengths = self.lengths(bytes.len())?;
        let block_bytes = lengths.iter().copied().max().unwrap_or(0);
        if block_bytes == 0 {
            return Ok(vec![Vec::new(); self.size]);
        }
        let mut send = bytes.to_vec();
        send.resize(block_bytes, 0);
        let mut all = self.room(block_bytes)?;
        (self.allgather)(&send, &mut all)?;
        Ok(all.chunks_exact(block_bytes).zip(lengths).map(|(block, bytes)| block[..bytes].to_vec()).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::thread;

    use shm_core::exchange::thread_group;

    use super::*;

    #[test]
    fn blocks_of_different_lengths_arrive_in_rank_order() {
        let card = |rank: usize| vec![u8::try_from(rank).unwrap(); rank * 3];
        let work = |mut group: shm_core::exchange::ThreadExchange| {
            let (rank, size) = (group.rank(), group.size());
            let gather = move |send: &[u8], recv: &mut [u8]| {
                recv.copy_from_slice(&group.allgather(send)?.concat());
                Ok(())
            };
            // SAFETY: the threads' exchange brings the blocks.
            let mut exchange = unsafe { OutOfBand::new(rank, size, gather) }.unwrap();
            for _ in 0..3 {
                assert_eq!(exchange.allgather(&card(rank)).unwrap(), (0..size).map(card).collect::<Vec<_>>());
                assert_eq!(exchange.allgather(b"").unwrap(), vec![Vec::<u8>::new(); size]);
            }
        };
        thread::scope(|scope| {
            // SAFETY: there are no engines.
            for group in unsafe { thread_group(4) } {
                scope.spawn(|| work(group));
            }
        });
    }

    #[test]
    fn a_callback_that_gathers_nothing_is_refused() {
        // SAFETY: no engine believes it.
        let mut exchange = unsafe { OutOfBand::new(0, 2, |_: &[u8], _: &mut [u8]| Ok(())) }.unwrap();
        assert!(exchange.allgather(b"card").unwrap_err().to_string().contains("returned 0 for rank 0"));
    }

    #[test]
    fn an_absurd_length_is_refused() {
        let gather = |send: &[u8], recv: &mut [u8]| {
            recv[..send.len()].copy_from_slice(send);
            recv[send.len()..].fill(0x7f);
            Ok(())
        };
        // SAFETY: no engine believes it.
        let error = unsafe { OutOfBand::new(0, 2, gather) }.unwrap().allgather(b"card").unwrap_err();
        assert!(error.to_string().contains("rank 1 sends"), "{error}");
    }

    #[test]
    fn a_rank_outside_the_world_is_refused() {
        for (rank, size) in [(2, 2), (0, 0)] {
            // SAFETY: nothing is exchanged.
            assert!(unsafe { OutOfBand::new(rank, size, |_: &[u8], _: &mut [u8]| Ok(())) }.is_err());
        }
    }
}
