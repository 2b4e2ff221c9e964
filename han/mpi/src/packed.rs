//! Broadcasts of elements with gaps: through a copy without gaps, which the MPI library packs and unpacks.
#![allow(unsafe_code)] // Calls the MPI library.

use std::ffi::c_int;

use crate::abi::Word;
use crate::real::{SUCCESS, real, theirs};
use crate::rules::Why;

/// A vector of elements and its copy without gaps.
pub(crate) struct Packed {
    copy: Vec<u8>,
    elements: *mut u8,
    /// Bytes of data in an element.
    size: usize,
    extent: isize,
    datatype: Word,
    comm: Word,
    is_root: bool,
    /// The datatype, if the program may free its own before the end.
    held: Option<Held>,
}

/// A datatype that the program may free.
pub(crate) struct Held(pub(crate) Word);

impl Held {
    /// A duplicate of the program's; `None` if that is no datatype.
    pub(crate) fn new(datatype: Word) -> Option<Self> {
        let mut copy: Word = 0;
        let duplicate = theirs!(c"PMPI_Type_dup", unsafe extern "C" fn(Word, *mut Word) -> c_int);
        // SAFETY: the handle is the program's, and there is room for another.
        let code = unsafe { duplicate(datatype, &raw mut copy) };
        (code == SUCCESS).then_some(Self(copy))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: it was made in `new`, and MPI has not ended.
        unsafe { (real().type_free)(&raw mut self.0) };
    }
}

/// Most bytes that are packed by one call: its numbers are of type `int`.
const MOST_BYTES: usize = 1 << 30;

impl Packed {
    /// The copy of `count` elements, filled at the root.
    pub(crate) fn new(
        elements: *mut u8,
        count: usize,
        size: usize,
        datatype: Word,
        comm: Word,
        is_root: bool,
    ) -> Result<Self, Why> {
        let (mut lower, mut extent) = (0, 0);
        // SAFETY: the size of the datatype is known, so it is one; there is room for two numbers.
        if unsafe { (real().type_get_extent)(datatype, &raw mut lower, &raw mut extent) } != SUCCESS {
            return Err(Why::Arguments);
        }
        let copy = vec![0; count * size];
        let mut packed = Self { copy, elements, size, extent, datatype, comm, is_root, held: None };
        if is_root {
            packed.each(|elements, count, part, bytes, datatype, comm| {
                let mut position = 0;
                let part = part.cast();
                // SAFETY: the MPI caller vouches for the elements, and `part` has the bytes of their data.
                unsafe { (real().pack)(elements.cast(), count, datatype, part, bytes, &raw mut position, comm) }
            });
        }
        Ok(packed)
    }

    /// Makes it last for longer than the program keeps datatype and communicator; `comm` is one that stays.
    pub(crate) fn outlive(&mut self, comm: Word) {
        self.comm = comm;
        self.held = Held::new(self.datatype);
        self.datatype = self.held.as_ref().map_or(self.datatype, |held| held.0);
    }

    /// Where the copy is.
    pub(crate) fn address(&mut self) -> *mut u8 {
        self.copy.as_mut_ptr()
    }

    /// Puts what has come into the elements; not at the root.
    pub(crate) fn finish(&mut self) {
        if !self.is_root {
            self.each(|elements, count, part, bytes, datatype, comm| {
                let mut position = 0;
                let part = part.cast_const().cast();
                // SAFETY: as above.
                unsafe { (real().unpack)(part, bytes, &raw mut position, elements.cast(), count, datatype, comm) }
            });
        }
    }

    /// Does `work` with successive elements and their part of the copy; what it returns is the MPI's to have reported.
    fn each(&mut self, work: impl Fn(*mut u8, c_int, *mut u8, c_int, Word, Word) -> c_int) {
        let at_once = (MOST_BYTES / self.size).clamp(1, c_int::MAX as usize);
        let mut elements = self.elements;
        for part in self.copy.chunks_mut(at_once * self.size) {
            let count = part.len() / self.size;
            let (numbers, bytes) = (c_int::try_from(count), c_int::try_from(part.len()));
            let (Ok(number), Ok(bytes)) = (numbers, bytes) else { return };
            if work(elements, number, part.as_mut_ptr(), bytes, self.datatype, self.comm) != SUCCESS {
                return;
            }
            elements = elements.wrapping_offset(self.extent.wrapping_mul(count.cast_signed()));
        }
    }
}
