//! Datatypes that programs make: whether their elements are their bytes in order, without gaps.
//!
//! Only repetition keeps bytes in order for certain, so contiguous types and duplicates of such are looked into, down to
//! a predefined one. What was found is kept in an attribute of the datatype: it goes with it, so no other datatype that
//! gets its handle can be taken for it.
#![allow(unsafe_code)] // Calls the MPI library, which calls back.

use std::ffi::{c_int, c_void};
use std::ops::RangeInclusive;
use std::ptr;

use crate::abi::{Abi, Word};
use crate::packed::is_committed;
use crate::real::{SUCCESS, real};

/// What is known of derived datatypes.
pub(crate) struct Derived {
    keyval: Option<c_int>,
    /// `MPI_COMBINER_NAMED`; duplicates have the next number, contiguous types that after it.
    combiner_named: c_int,
    combiners_f90: RangeInclusive<c_int>,
    combiner_value_index: Option<c_int>,
}

/// Values of the attribute.
const HAS_GAPS: usize = 1;
const IS_CONTIGUOUS: usize = 2;

extern "C" fn freed(_: Word, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    SUCCESS
}

impl Derived {
    pub(crate) fn new(abi: &Abi) -> Self {
        Self {
            keyval: real().type_keyval(freed),
            combiner_named: abi.combiner_named,
            combiners_f90: abi.combiners_f90.clone(),
            combiner_value_index: abi.combiner_value_index,
        }
    }

    /// Whether the elements of a datatype that has no layout here are repetitions of a predefined one that `is_contiguous`; `None` if it is
    /// not committed.
    pub(crate) fn is_contiguous(
        &self,
        handle: Word,
        silent: Word,
        is_contiguous: impl Fn(Word) -> bool,
    ) -> Option<bool> {
        let Some(keyval) = self.keyval else { return is_committed(handle, silent).then_some(false) };
        let (mut known, mut found): (*mut c_void, c_int) = (ptr::null_mut(), 0);
        // SAFETY: the handle is the program's, and there is room for both answers.
        let code = unsafe { (real().type_get_attr)(handle, keyval, (&raw mut known).cast(), &raw mut found) };
        if code == SUCCESS && found != 0 {
            return Some(known.addr() == IS_CONTIGUOUS);
        }
        if !is_committed(handle, silent) {
            return None;
        }
        let repeats = self.repeats(handle, &is_contiguous);
        let value = ptr::without_provenance_mut(if repeats { IS_CONTIGUOUS } else { HAS_GAPS });
        // SAFETY: the value is a number, not an address. If it cannot be kept, it is found again next time.
        unsafe { (real().type_set_attr)(handle, keyval, value) };
        Some(repeats)
    }

    fn repeats(&self, handle: Word, is_contiguous: &impl Fn(Word) -> bool) -> bool {
        let Some(made) = Made::of(handle) else { return false };
        if self.is_predefined(made.combiner) {
            return is_contiguous(handle);
        }
        // A duplicate is made of a datatype, a contiguous one of a number and a datatype.
        if made.combiner != self.combiner_named + 1 && made.combiner != self.combiner_named + 2 {
            return false;
        }
        let Some(mut inner) = made.inner(handle) else { return false };
        let repeats = self.repeats(inner, is_contiguous);
        if Made::of(inner).is_some_and(|made| !self.is_predefined(made.combiner)) {
            // SAFETY: what is not predefined was made for this question.
            unsafe { (real().type_free)(&raw mut inner) };
        }
        repeats
    }

    /// Whether nobody may free what that combiner made. The types of Fortran's kinds and those of pairs are predefined though
    /// they may have no names.
    fn is_predefined(&self, combiner: c_int) -> bool {
        combiner == self.combiner_named
            || Some(combiner) == self.combiner_value_index
            || self.combiners_f90.contains(&combiner)
    }
}

impl Drop for Derived {
    fn drop(&mut self) {
        if let Some(keyval) = &mut self.keyval {
            // SAFETY: it was made in `new`; datatypes that have it keep it.
            unsafe { (real().type_free_keyval)(keyval) };
        }
    }
}

/// How a datatype was made.
struct Made {
    combiner: c_int,
    /// Of how many numbers of type `int`.
    integers: c_int,
    /// Of how many of type `MPI_Count`.
    counts: i64,
}

impl Made {
    fn of(handle: Word) -> Option<Self> {
        // The older function must not be asked of datatypes that were made with counts.
        let Some(envelope) = real().type_get_envelope_c else { return Self::without_counts(handle) };
        let (mut integers, mut addresses, mut counts, mut datatypes, mut combiner) = (0, 0, 0, 0, 0);
        let (numbers, of) = ((&raw mut integers, &raw mut addresses, &raw mut counts), &raw mut datatypes);
        // SAFETY: the handle is a datatype, and there is room for five numbers.
        let code = unsafe { envelope(handle, numbers.0, numbers.1, numbers.2, of, &raw mut combiner) };
        let integers = c_int::try_from(integers).ok()?;
        (code == SUCCESS).then_some(Self { combiner, integers, counts })
    }

    /// The same by a library that cannot make any with counts.
    fn without_counts(handle: Word) -> Option<Self> {
        let (mut integers, mut addresses, mut datatypes, mut combiner) = (0, 0, 0, 0);
        let (numbers, of) = ((&raw mut integers, &raw mut addresses), &raw mut datatypes);
        // SAFETY: the handle is a datatype, and there is room for four numbers.
        let code = unsafe { (real().type_get_envelope)(handle, numbers.0, numbers.1, of, &raw mut combiner) };
        (code == SUCCESS).then_some(Self { combiner, integers, counts: 0 })
    }

    /// What the datatype was made of, if that was a datatype and at most one number.
    fn inner(&self, handle: Word) -> Option<Word> {
        let (mut numbers, mut addresses, mut counts, mut inner) = ([0; 1], [0; 1], [0; 1], [0; 1]);
        let (integers, addresses, of) = (numbers.as_mut_ptr(), addresses.as_mut_ptr(), inner.as_mut_ptr());
        let code = match real().type_get_contents_c {
            Some(contents) if self.counts > 0 => {
                let (most, counts) = (self.counts, counts.as_mut_ptr());
                // SAFETY: there is room for as much as is told of it: one number, no address, one datatype.
                unsafe { contents(handle, self.integers.into(), 0, most, 1, integers, addresses, counts, of) }
            }
            // SAFETY: as above.
            _ => unsafe { (real().type_get_contents)(handle, self.integers, 0, 1, integers, addresses, of) },
        };
        (code == SUCCESS).then_some(inner[0])
    }
}
