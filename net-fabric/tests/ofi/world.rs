//! Worlds of endpoints in one process, driven by one thread.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use net_fabric::transport::ofi::{Config, OfiTransport, candidates, world_here};
use net_fabric::transport::{Completion, Posted, Tag, Token, Transport};
use net_fabric::{Error, Result};

/// The providers that this machine has: at least the native one over sockets, the emulated one, and datagrams.
pub(crate) fn providers() -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for way in candidates(&Config::default()).unwrap() {
        if way.fits && !found.contains(&way.provider) {
            found.push(way.provider);
        }
    }
    assert!(found.iter().any(|name| name == "tcp" || name == "net"), "{found:?}");
    assert!(found.iter().any(|name| name == "tcp;ofi_rxm"), "{found:?}");
    assert!(found.iter().any(|name| name == "udp;ofi_rxd"), "{found:?}");
    found
}

pub(crate) fn over(provider: &str) -> Config {
    Config { providers: vec![provider.to_owned()], ..Config::default() }
}

/// Ranks with what has completed on each.
pub(crate) struct World {
    pub(crate) ranks: Vec<OfiTransport>,
    ended: Vec<HashMap<Token, (u64, Result<usize>)>>,
    next_token: u64,
}

/// Longer than anything takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

impl World {
    pub(crate) fn new(config: &Config, size: usize) -> Self {
        Self::of(world_here(config, size).unwrap())
    }

    pub(crate) fn of(ranks: Vec<OfiTransport>) -> Self {
        Self { ended: ranks.iter().map(|_| HashMap::new()).collect(), ranks, next_token: 0 }
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    pub(crate) fn drive(&mut self) {
        for (rank, ended) in self.ranks.iter_mut().zip(&mut self.ended) {
            let mut completed = Vec::new();
            rank.progress(&mut completed).unwrap();
            for Completion { token, word, outcome } in completed {
                assert!(ended.insert(token, (word, outcome)).is_none(), "{token:?} completed twice");
            }
        }
    }

    /// Posts until there is room. The memory has to outlive the message: callers keep it until the end.
    pub(crate) fn send(&mut self, from: usize, to: usize, tag: u64, word: u64, data: &[u8]) -> Result<Token> {
        let token = self.token();
        let started = Instant::now();
        loop {
            // SAFETY: by the callers, who keep the memory.
            match unsafe { self.ranks[from].send(to, Tag(tag), word, data.as_ptr(), data.len(), token) }? {
                Posted::Done => {
                    self.ended[from].insert(token, (0, Ok(data.len())));
                    return Ok(token);
                }
                Posted::Pending => return Ok(token),
                Posted::Busy => self.drive(),
            }
            assert!(started.elapsed() < DEADLINE, "no room for a send from {from} to {to}");
        }
    }

    pub(crate) fn receive(&mut self, at: usize, from: usize, tag: u64, data: &mut [u8]) -> Token {
        let token = self.token();
        let started = Instant::now();
        loop {
            // SAFETY: as above.
            match unsafe { self.ranks[at].receive(from, Tag(tag), data.as_mut_ptr(), data.len(), token) }.unwrap() {
                Posted::Done => panic!("a receive tells its word in a completion"),
                Posted::Pending => return token,
                Posted::Busy => self.drive(),
            }
            assert!(started.elapsed() < DEADLINE, "no room for a receive at {at} from {from}");
        }
    }

    /// Whether this message of `rank` is known to have ended.
    pub(crate) fn has_ended(&self, rank: usize, token: Token) -> bool {
        self.ended[rank].contains_key(&token)
    }

    /// Drives all ranks until this message of `rank` has ended.
    pub(crate) fn wait(&mut self, rank: usize, token: Token) -> (u64, Result<usize>) {
        let started = Instant::now();
        loop {
            if let Some(ended) = self.ended[rank].remove(&token) {
                return ended;
            }
            self.drive();
            assert!(
                started.elapsed() < DEADLINE,
                "{token:?} of rank {rank} does not end: {}",
                self.ranks[rank].describe()
            );
        }
    }

    pub(crate) fn sent(&mut self, rank: usize, token: Token, bytes: usize) {
        assert_eq!(self.wait(rank, token).1.unwrap(), bytes);
    }

    pub(crate) fn received(&mut self, rank: usize, token: Token, word: u64, bytes: usize) {
        let (came, outcome) = self.wait(rank, token);
        assert_eq!((came, outcome.unwrap()), (word, bytes));
    }

    pub(crate) fn error(&mut self, rank: usize, token: Token) -> Error {
        let told = self.wait(rank, token).1;
        told.expect_err(&self.ranks[rank].describe())
    }
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(17)).to_le_bytes()[0]).collect()
}
