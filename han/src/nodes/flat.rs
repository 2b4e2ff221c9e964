//! Operations that all ranks do through the network, and nothing else.
//!
//! They are begun in their order, and complete in any. Few are under way at a time: the network keeps a place for each that
//! is, and a program may begin as many as it likes.

use std::collections::VecDeque;
use std::rc::Rc;

use net_fabric::{Announced, FabricComm};
use reduce_kernels::Pieces;
use shm_core::Ticket;
use shm_core::memory::Lent;

use super::kept::Prepared;
use crate::error::Result;

/// Operations of a communicator that are under way at a time: later ones wait.
const MOST_ACTIVE: usize = 64;

/// Such an operation.
#[derive(Debug)]
pub(super) struct Flat {
    pub(super) number: u64,
    pub(super) announced: Announced,
    pub(super) prepared: Rc<Prepared>,
    /// `None` where its pieces are lent.
    pub(super) pieces: Option<Pieces>,
    /// The vectors are lent to the network, if the caller does not wait.
    pub(super) _lent: Option<Lent>,
}

/// Those that have not completed.
#[derive(Debug, Default)]
pub(super) struct Flats {
    under_way: VecDeque<(Flat, Ticket)>,
    waiting: VecDeque<Flat>,
}

impl Flats {
    pub(super) fn push(&mut self, flat: Flat) {
        self.waiting.push_back(flat);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        let under_way = self.under_way.front().map(|(flat, _)| flat.number);
        under_way.or_else(|| self.waiting.front().map(|flat| flat.number))
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.under_way.binary_search_by_key(&number, |(flat, _)| flat.number).is_ok()
            || self.waiting.binary_search_by_key(&number, |flat| flat.number).is_ok()
    }

    /// Begins what waits, as many as may be under way. True if there was anything. `lent`: the pieces of the operation that
    /// was lent them, if there is one.
    pub(super) fn begin_what_can(&mut self, fabric: &mut FabricComm, lent: Option<&Pieces>) -> Result<bool> {
        let mut any = false;
        while self.under_way.len() < MOST_ACTIVE
            && let Some(next) = self.waiting.front()
            && let Some(pieces) = next.pieces.as_ref().or(lent)
        {
            let ticket = fabric.start(next.announced, pieces.entire(), &next.prepared.choice.inter)?;
            self.under_way.extend(self.waiting.pop_front().map(|flat| (flat, ticket)));
            any = true;
        }
        Ok(any)
    }

    /// Takes out those that have completed. True if there were any.
    pub(super) fn collect(&mut self, fabric: &mut FabricComm) -> Result<bool> {
        if self.under_way.is_empty() {
            return Ok(false);
        }
        // It notes completions by itself, too, when it begins something: whether it is busy does not tell.
        fabric.note_completed()?;
        let before = self.under_way.len();
        self.under_way.retain(|(_, ticket)| !fabric.has_completed(*ticket));
        Ok(self.under_way.len() < before)
    }

    /// None of those that wait will begin.
    pub(super) fn give_up(&mut self) {
        self.waiting.iter_mut().for_each(|flat| flat.pieces = None);
    }
}
