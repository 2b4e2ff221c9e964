//! The messages that are under way: what the provider keeps of each, and what we do.
#![allow(unsafe_code)] // Memory that the provider writes.

use std::cell::UnsafeCell;
use std::mem::{size_of, size_of_val};

use libfabric_sys as sys;

use crate::fabric::{Context, Registered};
use crate::transport::Token;

/// What a slot is used for.
#[derive(Debug)]
pub(super) enum Kind {
    Send(Token),
    /// Sends a copy, which lies at this place; its caller has been told that it is done.
    Copy(usize),
    Receive(Token),
    /// Looks for a message that nobody asked for yet.
    Look,
    /// Receives one into memory of its own.
    Claim {
        data: Box<[u8]>,
        word: u64,
    },
}

/// A message that is under way.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) peer: usize,
    pub(super) tag: u64,
    pub(super) bytes: usize,
    pub(super) registered: Option<Registered>,
    /// Messages to the peer that had been [taken along](super::ahead) when it was posted.
    pub(super) before: u32,
    /// The caller has given it up.
    pub(super) cancelled: bool,
}

/// A fixed number of places for messages.
///
/// The provider's notes and what lies beside messages do not move, and are reached by raw pointers alone while messages are under
/// way.
pub(super) struct Slots {
    contexts: Box<[UnsafeCell<sys::fi_context2>]>,
    beside: Box<[UnsafeCell<[u64; 2]>]>,
    operations: Vec<Option<Operation>>,
    free: Vec<usize>,
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        Self {
            contexts: (0..count).map(|_| UnsafeCell::new(sys::fi_context2::default())).collect(),
            beside: (0..count).map(|_| UnsafeCell::new([0; 2])).collect(),
            operations: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
        }
    }

    /// A free slot, which stays free until it is [used](Self::put).
    pub(super) fn free(&self) -> Option<usize> {
        self.free.last().copied()
    }

    /// Uses the slot that [`free`](Self::free) has given.
    pub(super) fn put(&mut self, slot: usize, operation: Operation) {
        let free = self.free.pop();
        debug_assert_eq!(free, Some(slot));
        self.operations[slot] = Some(operation);
    }

    /// Ends a slot's use.
    pub(super) fn take(&mut self, slot: usize) -> Option<Operation> {
        let operation = self.operations.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(operation)
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Operation> {
        self.operations.get_mut(slot)?.as_mut()
    }

    /// The operations under way with their slots, from slot `start` on, then those before it.
    pub(super) fn around(&self, start: usize) -> impl Iterator<Item = (usize, &Operation)> + Clone {
        let count = self.operations.len();
        (0..count).filter_map(move |offset| {
            let slot = (start + offset) % count;
            self.operations[slot].as_ref().map(|operation| (slot, operation))
        })
    }

    /// The provider's notes on a message.
    pub(super) fn context(&self, slot: usize) -> Context {
        self.contexts[slot].get()
    }

    /// The slot that these notes belong to, if they are ours.
    pub(super) fn slot_of(&self, context: Context) -> Option<usize> {
        let offset = context.addr().checked_sub(self.contexts.as_ptr().addr())?;
        let slot = offset / size_of::<sys::fi_context2>();
        (slot < self.contexts.len() && self.operations[slot].is_some()).then_some(slot)
    }

    /// The slot with these notes, if it is the one that was freed last.
    pub(super) fn slot_that_was(&self, context: Context) -> Option<usize> {
        self.free().filter(|slot| self.context(*slot) == context)
    }

    /// Memory for what travels before a message's bytes (0: its word) or behind them (1: what should not be there).
    pub(super) fn beside(&self, slot: usize, place: usize) -> *mut u64 {
        let cell: *mut u64 = self.beside[slot].get().cast();
        assert!(place < 2);
        // SAFETY: within the two words of the cell.
        unsafe { cell.add(place) }
    }

    /// All such memory.
    pub(super) fn all_beside(&self) -> (*const u8, usize) {
        (self.beside.as_ptr().cast(), size_of_val(&*self.beside))
    }
}
