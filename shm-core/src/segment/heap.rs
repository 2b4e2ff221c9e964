//! The in-process twin of a shared memory object: ordinary memory, held by several threads.
#![allow(unsafe_code)] // allocates raw memory and passes its address between threads

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use crate::error::{Error, Result};
use crate::segment::layout::{Header, PAGE};
use crate::sync::Ordering;

/// A counted block; the last holder frees it.
#[derive(Debug)]
pub(super) struct HeapBlock {
    base: *mut u8,
    bytes: usize,
}

impl HeapBlock {
    /// A zeroed block with one holder.
    pub(super) fn new(bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout is at least one page.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        let block = Self { base, bytes };
        block.header().holders.store(1, Ordering::Relaxed);
        block
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes.max(PAGE), PAGE).unwrap_or(Layout::new::<Header>())
    }

    /// The address in a form that another thread can attach to; counts a holder only there.
    pub(super) fn exposed(&self) -> String {
        format!("{}:{:x}", std::process::id(), self.base.expose_provenance())
    }

    /// Holds the block that another thread of this process has exposed.
    pub(super) fn attach(place: &str, bytes: usize) -> Result<Self> {
        let parsed = place.split_once(':').and_then(|(pid, address)| {
            (pid.parse() == Ok(std::process::id())).then_some(usize::from_str_radix(address, 16).ok()?)
        });
        let Some(address) = parsed else {
            let reason = "heap segments serve threads of one process only".to_owned();
            return Err(Error::System { api: "attach", reason });
        };
        let block = Self { base: std::ptr::with_exposed_provenance_mut(address), bytes };
        block.header().holders.fetch_add(1, Ordering::Relaxed);
        Ok(block)
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn header(&self) -> &Header {
        #[allow(clippy::cast_ptr_alignment)] // page-aligned by its layout
        let header = self.base.cast::<Header>();
        // SAFETY: the block is at least a page, page-aligned, zeroed at first, and a Header is atomics
        // only; it is not freed while `self` counts as a holder.
        unsafe { &*header }
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        // P1 (Release): this holder's use comes before the freeing. Pairs with P2.
        if self.header().holders.fetch_sub(1, Ordering::Release) == 1 {
            // P2 (Acquire): pairs with P1 of all other holders. A load, because ThreadSanitizer does not
            // see fences.
            self.header().holders.load(Ordering::Acquire);
            // SAFETY: this was the last holder, and the layout is the one it was allocated with.
            unsafe { dealloc(self.base, Self::layout(self.bytes)) };
        }
    }
}
