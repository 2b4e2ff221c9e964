//! Transports around the loopback one: one that moves nothing, one that counts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use net_fabric::Result;
use net_fabric::transport::{Completion, Loopback, Posted, Tag, Token, Transport};

/// What a [`Counting`] transport has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    under_way: HashMap<u64, (usize, bool)>,
    /// By peer and direction: messages under way now, and the most ever.
    counts: HashMap<(usize, bool), (usize, usize)>,
    /// By direction, with whatever peers.
    totals: HashMap<bool, (usize, usize)>,
    pub(crate) reduced_bytes: usize,
    pub(crate) copied_bytes: usize,
}

impl Seen {
    fn begun(&mut self, peer: usize, sends: bool, token: Token) {
        self.under_way.insert(token.0, (peer, sends));
        for (now, most) in [self.counts.entry((peer, sends)).or_default(), self.totals.entry(sends).or_default()] {
            *now += 1;
            *most = (*most).max(*now);
        }
    }

    fn ended(&mut self, token: Token) {
        if let Some(of) = self.under_way.remove(&token.0) {
            self.counts.get_mut(&of).unwrap().0 -= 1;
            self.totals.get_mut(&of.1).unwrap().0 -= 1;
        }
    }

    /// The most sends (or receives) under way with any one peer.
    pub(crate) fn most(&self, sends: bool) -> usize {
        let most = self.counts.iter().filter(|((_, direction), _)| *direction == sends).map(|(_, (_, most))| *most);
        most.max().unwrap_or(0)
    }

    /// The same with all peers together.
    pub(crate) fn most_in_all(&self, sends: bool) -> usize {
        self.totals.get(&sends).map_or(0, |(_, most)| *most)
    }
}

/// Counts what passes. If it is hollow, it takes null and moves nothing.
pub(crate) struct Counting {
    inner: Loopback,
    hollow: bool,
    pub(crate) room: usize,
    pub(crate) seen: Rc<RefCell<Seen>>,
}

impl Counting {
    pub(crate) fn around(world: Vec<Loopback>, hollow: bool) -> Vec<Self> {
        world.into_iter().map(|inner| Self { inner, hollow, room: usize::MAX, seen: Rc::default() }).collect()
    }
}

impl Transport for Counting {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn max_message_bytes(&self) -> usize {
        1 << 20
    }

    fn room(&self) -> usize {
        self.room
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
        assert!(!self.hollow || data.is_null());
        let bytes = if self.hollow { 0 } else { bytes };
        // SAFETY: the caller's promise is the same; nothing is read from null.
        let posted = unsafe { self.inner.send(peer, tag, word, data, bytes, token) }?;
        if posted == Posted::Pending {
            self.seen.borrow_mut().begun(peer, true, token);
        }
        Ok(posted)
    }

    unsafe fn receive(&mut self, peer: usize, tag: Tag, data: *mut u8, bytes: usize, token: Token) -> Result<Posted> {
        assert!(!self.hollow || data.is_null());
        let bytes = if self.hollow { 0 } else { bytes };
        // SAFETY: the caller's promise is the same; nothing is written to null.
        let posted = unsafe { self.inner.receive(peer, tag, data, bytes, token) }?;
        if posted == Posted::Pending {
            self.seen.borrow_mut().begun(peer, false, token);
        }
        Ok(posted)
    }

    fn progress(&mut self, completed: &mut Vec<Completion>) -> Result<()> {
        let before = completed.len();
        self.inner.progress(completed)?;
        completed[before..].iter().for_each(|completion| self.seen.borrow_mut().ended(completion.token));
        Ok(())
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        self.inner.sleep(limit)
    }

    fn work(&mut self, reduced_bytes: usize, copied_bytes: usize) {
        let mut seen = self.seen.borrow_mut();
        seen.reduced_bytes += reduced_bytes;
        seen.copied_bytes += copied_bytes;
    }

    fn describe(&self) -> String {
        "the counting transport".to_owned()
    }
}
