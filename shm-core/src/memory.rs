//! Buffers in memory that the other ranks of the node can map, so that collectives need no copies of them.
#![allow(unsafe_code)] // memory that is taken and given back by hand

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use reduce_kernels::Element;

use crate::copy::Home;
use crate::error::{Error, Result};
use crate::job::Job;

/// A block of bytes from a rank's heap; goes back when it is dropped.
///
/// Peers map the heap where they can (method `shared`); elsewhere it is ordinary memory.
#[derive(Debug)]
pub struct Block {
    job: Rc<Job>,
    pointer: *mut u8,
    bytes: usize,
    home: Home,
}

impl Block {
    /// Its first byte: aligned to 128 bytes, to a page from 4 KiB on.
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether peers can map it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.home, Home::Region(_))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: taken in `Job::allocate` for as many bytes, given back here only.
        unsafe { self.job.reach().give(self.pointer, self.bytes, self.home) };
    }
}

impl Job {
    /// Takes a block of memory, its contents zero if that is wanted and undefined otherwise.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn allocate(self: &Rc<Self>, bytes: usize, zeroed: bool) -> Result<Block> {
        let (pointer, home) = self.reach().take(bytes, zeroed)?;
        Ok(Block { job: Rc::clone(self), pointer, bytes, home })
    }
}

/// Elements in memory that the other ranks of the node can map; zeros at first.
///
/// The length is fixed. Pages are placed near the core that touches them first.
pub struct SharedVec<T> {
    block: Block,
    length: usize,
    elements: PhantomData<T>,
}

impl<T: Element> SharedVec<T> {
    /// `length` zeros from the heap of `job`'s rank.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn zeroed(job: &Rc<Job>, length: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= 128) };
        let bytes = length.checked_mul(size_of::<T>()).ok_or_else(|| Error::NoMemory {
            bytes: usize::MAX,
            reason: format!("{length} elements of {} bytes are more than an address space has", size_of::<T>()),
        })?;
        Ok(Self { block: job.allocate(bytes, true)?, length, elements: PhantomData })
    }
}

impl<T> SharedVec<T> {
    /// Whether peers can map it; where they cannot, it is ordinary memory.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.block.is_shared()
    }
}

impl<T: Element> Deref for SharedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the block has room for `length` elements (by `zeroed`), is aligned, was zero at first, which
        // is a value of every `Element`, and lives as long as `self`. Peers access it within collectives
        // only, which have borrowed it.
        unsafe { std::slice::from_raw_parts(self.block.pointer().cast(), self.length) }
    }
}

impl<T: Element> DerefMut for SharedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; nobody else on this rank has it, because `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.block.pointer().cast(), self.length) }
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for SharedVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
