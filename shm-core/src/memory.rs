//! Buffers in memory that the other ranks of the node can map, so that collectives need no copies of them.
#![allow(unsafe_code)] // memory that is taken and given back by hand

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use reduce_kernels::{Call, Element};

pub use crate::copy::Lent;
use crate::copy::{Home, Neighbours, Untold};
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

    /// Registers ordinary memory, so that peers can map it where it is, until it is unregistered or this
    /// rank leaves the job. Where the method `shared` is off this has no effect.
    ///
    /// The whole pages around the buffer are moved into a shared object in place; their contents and
    /// addresses stay. Memory that is pinned for a device must not be registered: it keeps the pages that were there before. What
    /// `madvise` was told of the pages is lost.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: it is no private anonymous memory, but a stack, a mapping of a file, read-only, shared
    /// already, not mapped, locked by `mlock`; it is registered already; a vector of an operation that is under way lies on its pages.
    /// [`Error::NoMemory`]: 256 buffers of this rank are registered already. [`Error::System`]: the system does not tell
    /// what it is, or refuses.
    ///
    /// # Safety
    /// Until this returns no other thread writes to the pages that the buffer lies on, also to other data
    /// there. The buffer is unregistered before it is freed, moved by `realloc`, or mapped over.
    pub unsafe fn register(&self, start: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.reach().register(start, bytes, Neighbours::Still) }
    }

    /// Lends the vectors of `call`, which is rank `rank`'s of its communicator: as long as the result lives, no memory that
    /// they lie on is registered. For those that a peer's kernel or the network accesses.
    #[must_use]
    pub fn lend(&self, call: &Call<'_>, rank: usize) -> Lent {
        let recv = if call.receives(rank) { call.recv.cast_const() } else { call.send };
        self.reach().lend([call.send, recv], call.bytes())
    }

    /// Makes memory private again that was registered by this start; its contents stay.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: it is not registered; or it was freed before, and is registered no more. [`Error::System`]:
    /// the system does not tell whether it was freed, and it stays registered; or does not make all of its pages private, and
    /// it is registered no more.
    ///
    /// # Safety
    /// No operation uses the buffer, and until this returns no other thread accesses the pages that it lies
    /// on, also other data there.
    pub unsafe fn unregister(&self, start: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.reach().unregister(start, Untold::Refused) }
    }
}

impl Job {
    /// Does `work` with `slice` while it is registered, so that peers map it where it is. An empty slice needs no
    /// registration.
    ///
    /// A slice that does not fill whole pages shares its first and last page with other data. Therefore it
    /// is refused where this process has several threads, which might write there meanwhile.
    ///
    /// # Errors
    /// As [`register`](Self::register), or because of other threads; `work` was not done then.
    pub fn with_registered<T: Element, R>(&self, slice: &mut [T], work: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        if size_of_val(slice) == 0 {
            return Ok(work(slice));
        }
        let start = slice.as_mut_ptr().cast();
        // SAFETY: the slice is borrowed mutably, so nobody else writes to it; other data on its pages has no
        // other thread to write it. It is not freed before it is unregistered below, because it is borrowed until
        // then: a guard in the caller's hands could be forgotten, this one cannot.
        unsafe { self.reach().register(start, size_of_val(slice), Neighbours::IfAlone) }?;
        let _registered = Registered { job: self, start };
        Ok(work(slice))
    }
}

/// A slice that is registered, until this is dropped.
struct Registered<'a> {
    job: &'a Job,
    start: *mut u8,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        // SAFETY: no operation can have borrowed the slice beyond `work`, and pages that hold other data stay where
        // they are if this process has other threads (`Neighbours::IfAlone`).
        let outcome = unsafe { self.job.reach().unregister(self.start, Untold::Kept) };
        debug_assert!(outcome.is_ok() || std::thread::panicking(), "{outcome:?}");
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
