//! Results of pairs that have padding, such as `struct { double; int; }`: through a copy. The padding is not among what MPI
//! calls an element's data, so a program may keep something of its own there, which no reduction writes to.
#![allow(unsafe_code)] // Writes to the program's buffer.

use std::ops::Range;
use std::ptr;

use han::Datatype;

/// A vector of results that are not in their places yet.
pub(crate) struct Padded {
    /// In words, for the alignment.
    copy: Vec<u64>,
    result: *mut u8,
    /// Bytes from one element to the next.
    extent: usize,
    /// Where the value and the index are in an element.
    data: [Range<usize>; 2],
}

impl Padded {
    /// Room for `count` results that belong at `result`; `None` if their elements are without padding.
    #[inline]
    pub(crate) fn new(datatype: Datatype, count: usize, result: *mut u8) -> Option<Self> {
        let data = match datatype {
            Datatype::DoubleInt | Datatype::LongInt => [0..8, 8..12],
            Datatype::ShortInt => [0..2, 4..8],
            _ => return None,
        };
        let extent = datatype.size();
        Some(Self { copy: vec![0; count * extent / size_of::<u64>()], result, extent, data })
    }

    /// Where the copy is.
    pub(crate) fn address(&mut self) -> *mut u8 {
        self.copy.as_mut_ptr().cast()
    }

    /// Puts the results into their places.
    pub(crate) fn finish(&self) {
        let copy = self.copy.as_ptr().cast::<u8>();
        for element in (0..size_of_val(self.copy.as_slice())).step_by(self.extent) {
            for Range { start, end } in self.data.clone() {
                let (from, to) = (copy.wrapping_add(element + start), self.result.wrapping_add(element + start));
                // SAFETY: both have as many elements, for `result` the MPI caller vouches; nobody else knows the copy.
                unsafe { ptr::copy_nonoverlapping(from, to, end - start) };
            }
        }
    }
}
