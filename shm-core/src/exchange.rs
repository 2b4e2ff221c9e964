//! The one thing that start-up needs from outside: every rank gives some bytes, every rank gets all.
//!
//! A launcher's key-value store, a caller's own allgather, a parent communicator and a group of
//! threads all provide it, so segments are made in one way whoever brings the ranks together.
#![allow(unsafe_code)] // who brings the ranks together answers for it

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// An error of whoever carries the bytes.
pub type ExchangeError = Box<dyn std::error::Error + Send + Sync>;

/// Collective exchange of small byte strings between the ranks of a group.
///
/// ```compile_fail,E0200
/// # use shm_core::exchange::{Exchange, ExchangeError};
/// struct Liar;
/// impl Exchange for Liar { // an `unsafe impl`, or none
///     fn rank(&self) -> usize { 0 }
///     fn size(&self) -> usize { 2 }
///     fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
///         Ok(vec![bytes.to_vec(), b"an address, say".to_vec()])
///     }
/// }
/// ```
///
/// # Safety
/// Whoever implements it answers for the group: what ranks tell each other in it are processes, descriptors and addresses,
/// from which memory is read and to which it is written.
///
/// - [`rank`](Self::rank) is another one on each rank, from 0 to [`size`](Self::size) - 1, both always the same;
///   [`number`](Self::number), [`world_size`](Self::world_size) and [`nodes`](Self::nodes) say what their descriptions do.
/// - What [`allgather`](Self::allgather) returns as `Ok` is what all ranks of the group, each once and in rank order, have
///   given to the same call of it, the how manieth it is, byte by byte. Where that is not known it returns an error.
///
/// Ranks are one job: bytes that the program of one of them gives by hand, while others make an engine together, are taken
/// for its engine's, as what it writes to memory that they share is.
pub unsafe trait Exchange {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// The number by which messages call `rank`: its own, unless the group is part of a larger world.
    fn number(&self, rank: usize) -> usize {
        rank
    }

    /// Number of ranks of that world.
    fn world_size(&self) -> usize {
        self.size()
    }

    /// Every rank gives `bytes` (lengths may differ) and receives all of them in rank order.
    ///
    /// # Errors
    /// Whatever the carrier reports: a launcher that went away, a callback that failed.
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError>;

    /// The node of each rank where the launcher tells it, else `None`.
    fn nodes(&self) -> Option<Vec<usize>> {
        None
    }

    /// Says good-bye to the launcher; called once, when the job has ended well on this rank.
    ///
    /// # Errors
    /// Whatever the carrier reports.
    fn finalize(&mut self) -> Result<(), ExchangeError> {
        Ok(())
    }

    /// Asks the launcher to end the job with `code`; does nothing where there is none.
    fn abort(&mut self, _code: i32, _why: &str) {}
}

/// A rank that is alone.
#[derive(Debug, Default)]
pub struct Alone;

// SAFETY: the only rank gets what it gives.
unsafe impl Exchange for Alone {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        Ok(vec![bytes.to_vec()])
    }
}

/// One member of a group of threads; see [`thread_group`].
#[derive(Debug)]
pub struct ThreadExchange {
    rank: usize,
    board: Arc<Board>,
}

#[derive(Debug)]
struct Board {
    state: Mutex<BoardState>,
    changed: Condvar,
}

#[derive(Debug)]
struct BoardState {
    given: Vec<Option<Vec<u8>>>,
    all: Arc<Vec<Vec<u8>>>,
    round: u64,
    /// A thread has waited in vain: the others' rounds would no longer be its own.
    is_over: bool,
}

/// Exchanges for `size` ranks that are threads of this process.
///
/// They serve communicators over the in-process segment, which sanitizers can follow.
///
/// # Safety
/// Nothing of this process but the ranks' engines gives bytes to an exchange that engines of other ranks take part in, and
/// these engines are of the same version: addresses are among what they tell each other.
#[must_use]
pub unsafe fn thread_group(size: usize) -> Vec<ThreadExchange> {
    let state = BoardState { given: vec![None; size], all: Arc::new(Vec::new()), round: 0, is_over: false };
    let board = Arc::new(Board { state: Mutex::new(state), changed: Condvar::new() });
    (0..size).map(|rank| ThreadExchange { rank, board: Arc::clone(&board) }).collect()
}

// SAFETY: each member has a place of its own on the board, all of which are handed out in the order of ranks when the last
// is filled. The next round needs everybody, so nobody is still to take this one's; after a round that fails there is none.
unsafe impl Exchange for ThreadExchange {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.board.state.lock().unwrap_or_else(PoisonError::into_inner).given.len()
    }
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mut state = self.board.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            return Err("a thread of the group did not come to an exchange before".into());
        }
        let round = state.round;
        state.given[self.rank] = Some(bytes.to_vec());
        if state.given.iter().all(Option::is_some) {
            let all = state.given.iter_mut().filter_map(Option::take).collect();
            state.all = Arc::new(all);
            state.round += 1;
            self.board.changed.notify_all();
        }
        while state.round == round {
            let (next, timeout) =
                self.board.changed.wait_timeout(state, Duration::from_secs(60)).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() && state.round == round {
                state.is_over = true;
                return Err("a thread of the group did not come to the exchange within 60 s".into());
            }
        }
        Ok(state.all.as_ref().clone())
    }
}
