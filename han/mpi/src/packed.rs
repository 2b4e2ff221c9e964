//! Broadcasts of elements with gaps: through a copy without gaps, which the MPI library packs and unpacks.
#![allow(unsafe_code)] // Calls the MPI library.

use std::ffi::c_int;
use std::ptr;

use crate::abi::Word;
use crate::older::ERR_COUNT;
use crate::real::{SUCCESS, real, theirs};

/// A vector of elements and its copy without gaps.
pub(crate) struct Packed {
    copy: Vec<u8>,
    elements: *mut u8,
    count: usize,
    datatype: Word,
    /// One that returns errors, and that the program does not know.
    silent: Word,
    is_root: bool,
    /// What packing has returned, or keeping the datatype.
    code: c_int,
    /// The datatype, if it is not the program's own.
    held: Option<Held>,
}

/// A datatype of this library: what it was made from, the program may free.
pub(crate) struct Held(pub(crate) Word);

type CreateHindexed = unsafe extern "C-unwind" fn(c_int, *const c_int, *const isize, Word, *mut Word) -> c_int;
type CreateResized = unsafe extern "C-unwind" fn(Word, isize, isize, *mut Word) -> c_int;

impl Held {
    /// One of the program's, as another: not as a duplicate, for which MPI calls the functions of the program's attributes. The
    /// code of the MPI's error if it cannot be made.
    pub(crate) fn new(datatype: Word) -> Result<Self, c_int> {
        let mut once: Word = 0;
        let create = theirs!(c"PMPI_Type_contiguous", unsafe extern "C-unwind" fn(c_int, Word, *mut Word) -> c_int);
        // SAFETY: the handle is the program's, and there is room for another.
        match unsafe { create(1, datatype, &raw mut once) } {
            SUCCESS => Self(once).committed(),
            code => Err(code),
        }
    }

    /// The datatype with all displacements relative to the first byte of data, and the address of that byte: where
    /// displacements are addresses, as they are from `MPI_BOTTOM`. `None` if they are none.
    fn from_bottom(datatype: Word) -> Option<(Self, *mut u8)> {
        let (mut first, mut length, mut lower, mut extent) = (0, 0, 0, 0);
        // SAFETY: the handle is a datatype, and there is room for two numbers.
        let code = unsafe { (real().type_get_true_extent)(datatype, &raw mut first, &raw mut length) };
        // SAFETY: as above.
        let then = unsafe { (real().type_get_extent)(datatype, &raw mut lower, &raw mut extent) };
        if code != SUCCESS || then != SUCCESS || first == 0 {
            return None;
        }
        let back = first.wrapping_neg();
        let relative = Self::moved(datatype, back)?.resized(lower.wrapping_add(back), extent)?.committed().ok()?;
        Some((relative, ptr::with_exposed_provenance_mut(first.cast_unsigned())))
    }

    /// The same, ready for use.
    fn committed(mut self) -> Result<Self, c_int> {
        let commit = theirs!(c"PMPI_Type_commit", unsafe extern "C-unwind" fn(*mut Word) -> c_int);
        // SAFETY: the handle is a datatype of this library.
        match unsafe { commit(&raw mut self.0) } {
            SUCCESS => Ok(self),
            code => Err(code),
        }
    }

    /// One element, that many bytes further on.
    fn moved(datatype: Word, bytes: isize) -> Option<Self> {
        let (length, mut moved): (c_int, Word) = (1, 0);
        let create = theirs!(c"PMPI_Type_create_hindexed", CreateHindexed);
        // SAFETY: the handle is a datatype; one block has one length and one displacement; there is room for a handle.
        let code = unsafe { create(1, &raw const length, &raw const bytes, datatype, &raw mut moved) };
        (code == SUCCESS).then_some(Self(moved))
    }

    /// The same with these bounds.
    fn resized(&self, lower: isize, extent: isize) -> Option<Self> {
        let mut resized: Word = 0;
        let create = theirs!(c"PMPI_Type_create_resized", CreateResized);
        // SAFETY: the handle is a datatype of this library, and there is room for another.
        let code = unsafe { create(self.0, lower, extent, &raw mut resized) };
        (code == SUCCESS).then_some(Self(resized))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: it was made here, and MPI has not ended.
        unsafe { (real().type_free)(&raw mut self.0) };
    }
}

/// Whether the library packs that many bytes: older ones have numbers of type `int` alone, for elements as well.
pub(crate) fn can_pack(bytes: usize) -> bool {
    bytes <= c_int::MAX as usize || (real().pack_c.is_some() && real().unpack_c.is_some())
}

/// Whether the library takes elements of a datatype: it does not before that is committed. Nothing is packed.
pub(crate) fn is_committed(datatype: Word, silent: Word) -> bool {
    let (from, mut to, mut position) = ([0_u8; 1], [0_u8; 1], 0);
    let (from, to) = (from.as_ptr().cast(), to.as_mut_ptr().cast());
    // SAFETY: the handle is a datatype, and no elements are read or written; `silent` returns errors.
    unsafe { (real().pack)(from, 0, datatype, to, 1, &raw mut position, silent) == SUCCESS }
}

impl Packed {
    /// The copy of `count` elements of `size` bytes of data, filled at the root. A root whose elements cannot be packed
    /// broadcasts all the same, since others wait for it; [`finish`](Self::finish) tells.
    pub(crate) fn new(
        elements: *mut u8,
        count: usize,
        size: usize,
        datatype: Word,
        silent: Word,
        is_root: bool,
    ) -> Self {
        let copy = vec![0; count * size];
        let mut packed = Self { copy, elements, count, datatype, silent, is_root, code: SUCCESS, held: None };
        if elements.is_null() {
            packed.leave_bottom();
        }
        if is_root {
            packed.code = packed.pack();
        }
        packed
    }

    /// Describes elements whose addresses are in their datatype by their address: MPICH 4.0 packs nothing from
    /// `MPI_BOTTOM`, which is null in every binary interface.
    fn leave_bottom(&mut self) {
        if let Some((held, elements)) = Held::from_bottom(self.datatype) {
            self.elements = elements;
            self.datatype = held.0;
            self.held = Some(held);
        }
    }

    /// Makes it last for longer than the program keeps the datatype. What cannot is an error in the end, as above.
    pub(crate) fn outlive(&mut self) {
        if self.is_root || self.held.is_some() {
            return;
        }
        match Held::new(self.datatype) {
            Ok(held) => {
                self.datatype = held.0;
                self.held = Some(held);
            }
            Err(code) => self.code = code,
        }
    }

    /// Where the copy is.
    pub(crate) fn address(&mut self) -> *mut u8 {
        self.copy.as_mut_ptr()
    }

    /// Puts what has come into the elements, off the root; the code of the error if it or what was done before has failed, of
    /// which nobody has heard.
    pub(crate) fn finish(&self) -> c_int {
        if self.is_root || self.code != SUCCESS { self.code } else { self.unpack() }
    }

    /// Fills the copy; gives the MPI's code.
    fn pack(&mut self) -> c_int {
        let Self { elements, count, datatype, silent, .. } = *self;
        let (elements, copy, bytes) = (elements.cast_const().cast(), self.copy.as_mut_ptr().cast(), self.copy.len());
        if let Some(pack) = real().pack_c {
            let mut position = 0;
            // SAFETY: the MPI caller vouches for the elements, and the copy has the bytes of their data.
            unsafe { pack(elements, count as i64, datatype, copy, bytes as i64, &raw mut position, silent) }
        } else if let (Ok(count), Ok(bytes)) = (c_int::try_from(count), c_int::try_from(bytes)) {
            let mut position = 0;
            // SAFETY: as above.
            unsafe { (real().pack)(elements, count, datatype, copy, bytes, &raw mut position, silent) }
        } else {
            ERR_COUNT
        }
    }

    /// Fills the elements, likewise.
    fn unpack(&self) -> c_int {
        let Self { elements, count, datatype, silent, .. } = *self;
        let (elements, copy, bytes) = (elements.cast(), self.copy.as_ptr().cast(), self.copy.len());
        if let Some(unpack) = real().unpack_c {
            let mut position = 0;
            // SAFETY: as above.
            unsafe { unpack(copy, bytes as i64, &raw mut position, elements, count as i64, datatype, silent) }
        } else if let (Ok(count), Ok(bytes)) = (c_int::try_from(count), c_int::try_from(bytes)) {
            let mut position = 0;
            // SAFETY: as above.
            unsafe { (real().unpack)(copy, bytes, &raw mut position, elements, count, datatype, silent) }
        } else {
            ERR_COUNT
        }
    }
}
