//! Exchanges within part of a group, while its other ranks do something else.
//!
//! An exchange needs all ranks of its group, but the ranks of a node, or of one of several new communicators, have
//! as many to make as they need, and others none. So everyone takes part in rounds of the whole group until all have
//! done; a word in front of the bytes says how far a rank is. A rank that cannot go on says so, and all learn it.
#![allow(unsafe_code)] // vouches for the exchange

use shm_core::exchange::{Exchange, ExchangeError};
use shm_core::{Error, Result};

/// The rank has done.
const DONE: u8 = 0;
/// The rank exchanges: its bytes follow.
const GOING: u8 = 1;
/// The rank gives up: the reason follows.
const FAILED: u8 = 2;

/// Does `make` with an exchange between `members` of `whole`, this rank among them. Collective over `whole`, whose
/// ranks may have other members and do other things.
///
/// # Errors
/// That of `make`, also another rank's.
pub(crate) fn in_part<T>(
    whole: &mut dyn Exchange,
    members: &[usize],
    make: impl FnOnce(&mut dyn Exchange) -> Result<T>,
) -> Result<T> {
    let mut part = Part { whole, members, over: None };
    let made = make(&mut part);
    if let Some(error) = part.over.take() {
        return Err(made.err().unwrap_or(error));
    }
    let (state, text) = match &made {
        Ok(_) => (DONE, String::new()),
        Err(e) => (FAILED, e.to_string()),
    };
    loop {
        match part.round(state, text.as_bytes()) {
            Ok(words) if words.iter().all(|word| word.first() == Some(&DONE)) => return made,
            Ok(_) => {}
            Err(error) => return Err(made.err().unwrap_or(error)),
        }
    }
}

struct Part<'a> {
    whole: &'a mut dyn Exchange,
    members: &'a [usize],
    /// Why there will be no further round.
    over: Option<Error>,
}

impl Part<'_> {
    fn round(&mut self, state: u8, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        let words = self.whole.allgather(&[&[state], bytes].concat()).map_err(Error::of_exchange);
        let words = words.inspect_err(|error| self.over = Some(error.clone()))?;
        let failed = words.iter().enumerate().find(|(_, word)| word.first() == Some(&FAILED));
        if let Some((rank, word)) = failed {
            let why = String::from_utf8_lossy(word.get(1..).unwrap_or_default());
            let error = Error::told(self.whole.number(rank), &why);
            self.over = Some(error.clone());
            return Err(error);
        }
        Ok(words)
    }
}

// SAFETY: the whole group's exchange keeps the contract, and `in_part` is collective over it: every rank takes part in
// each of its rounds. A round's answers are taken for a part's only where each of the members says that it exchanges,
// and the members are in the order of their ranks.
unsafe impl Exchange for Part<'_> {
    fn rank(&self) -> usize {
        let own = self.whole.rank();
        self.members.iter().position(|&member| member == own).unwrap_or(0)
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn number(&self, rank: usize) -> usize {
        self.whole.number(self.members[rank])
    }

    fn world_size(&self) -> usize {
        self.whole.world_size()
    }

    fn allgather(&mut self, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, ExchangeError> {
        let words = self.round(GOING, bytes)?;
        let of_member = |&member: &usize| match words.get(member).and_then(|word| word.split_first()) {
            Some((&GOING, bytes)) => Ok(bytes.to_vec()),
            _ => Err(format!("rank {} has left an exchange that it is part of", self.whole.number(member)).into()),
        };
        self.members.iter().map(of_member).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::thread;

    use shm_core::exchange::{ThreadExchange, thread_group};

    use super::*;

    /// Runs `work` on `size` ranks.
    fn run<T: Send>(size: usize, work: impl Fn(ThreadExchange) -> T + Sync) -> Vec<T> {
        let work = &work;
        thread::scope(|scope| {
            // SAFETY: there are no engines.
            let group = unsafe { thread_group(size) };
            let ranks: Vec<_> = group.into_iter().map(|rank| scope.spawn(move || work(rank))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn parts_exchange_as_often_as_they_like() {
        let all = run(5, |mut whole| {
            let rank = whole.rank();
            // Ranks 0, 2 and 4 exchange three times, rank 3 once with itself, rank 1 never.
            let (members, times) = match rank {
                1 => (vec![], 0),
                3 => (vec![3], 1),
                _ => (vec![4, 0, 2], 3),
            };
            in_part(&mut whole, &members, |part| {
                let mut got = Vec::new();
                for time in 0..times {
                    let own = format!("{rank}.{time}");
                    let words = part.allgather(own.as_bytes()).unwrap();
                    assert_eq!(words[part.rank()], own.as_bytes());
                    got.extend(words.into_iter().map(|word| String::from_utf8(word).unwrap()));
                }
                Ok(got.join(" "))
            })
            .unwrap()
        });
        let even = "4.0 0.0 2.0 4.1 0.1 2.1 4.2 0.2 2.2";
        assert_eq!(all, [even, "", even, "3.0", even]);
    }

    #[test]
    fn who_cannot_go_on_ends_it_for_all() {
        let all = run(4, |mut whole| {
            let rank = whole.rank();
            let members = if rank < 2 { [0, 1] } else { [2, 3] };
            let made = in_part(&mut whole, &members, |part| {
                part.allgather(b"first").map_err(|e| Error::Startup(e.to_string()))?;
                if rank == 3 {
                    return Err(Error::Startup("no memory".to_owned()));
                }
                part.allgather(b"second").map_err(|e| Error::Startup(e.to_string()))?;
                Ok(())
            });
            made.unwrap_err().to_string()
        });
        assert!(all.iter().all(|error| error.contains("no memory")), "{all:?}");
        assert!(all[..3].iter().all(|error| error.contains("rank 3")), "{all:?}");
    }
}
