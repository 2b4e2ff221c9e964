//! A transport whose rank can be killed: it is gone for its peers, and says nothing any more. A brittle one kills
//! itself when a message is given up, as some real ones must to get memory back.

use std::time::Duration;

use net_fabric::transport::loopback::Options;
use net_fabric::transport::{Completion, Loopback, Posted, Tag, Token, Transport};
use net_fabric::{Error, Result};

#[derive(Debug)]
pub(crate) struct Mortal {
    alive: Option<Loopback>,
    rank: usize,
    size: usize,
    brittle: bool,
    /// A peer to which the connection is lost, until that is told.
    lost: Option<usize>,
}

impl Mortal {
    pub(crate) fn world(size: usize, options: Options, brittle: bool) -> Vec<Self> {
        let ranks = Loopback::world(size, options).into_iter().enumerate();
        ranks.map(|(rank, alive)| Self { alive: Some(alive), rank, size, brittle, lost: None }).collect()
    }

    pub(crate) fn kill(&mut self) {
        self.alive = None;
    }

    /// Takes a peer for gone, which is there.
    pub(crate) fn lose(&mut self, peer: usize) {
        self.lost = Some(peer);
    }

    fn alive(&mut self) -> Result<&mut Loopback> {
        self.alive.as_mut().ok_or_else(|| Error::Unreachable { rank: self.rank, reason: "killed".to_owned() })
    }
}

impl Transport for Mortal {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn receives_from_anybody(&self) -> bool {
        self.brittle
    }

    unsafe fn send(
        &mut self,
        peer: usize,
        tag: Tag,
        word: u64,
        data: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<Posted> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.alive()?.send(peer, tag, word, data, bytes, token) }
    }

    unsafe fn receive(&mut self, peer: usize, tag: Tag, data: *mut u8, bytes: usize, token: Token) -> Result<Posted> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.alive()?.receive(peer, tag, data, bytes, token) }
    }

    fn progress(&mut self, completed: &mut Vec<Completion>) -> Result<()> {
        if let Some(rank) = self.lost.take() {
            return Err(Error::Unreachable { rank, reason: "its connection is closed".to_owned() });
        }
        self.alive()?.progress(completed)
    }

    fn cancel(&mut self, token: Token) {
        if let Ok(alive) = self.alive() {
            alive.cancel(token);
        }
        if self.brittle {
            self.kill();
        }
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        self.alive()?.sleep(limit)
    }

    fn describe(&self) -> String {
        "mortal".to_owned()
    }
}
