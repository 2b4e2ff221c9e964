//! Datatypes: which of the MPI's are which of han's, and how their elements lie in memory.
#![allow(unsafe_code)] // Asks the MPI library.

use std::cell::OnceCell;

use han::{Datatype, Operator};

use crate::abi::{Abi, Flavour, Kind, Word};
use crate::derived::Derived;
use crate::real::{SUCCESS, real};

/// How the elements of a datatype lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of data in an element.
    pub(crate) size: usize,
    /// Bytes from one element to the next if elements have no gaps and their bytes are in order.
    pub(crate) is_contiguous: bool,
    /// What reduces them here.
    pub(crate) kernels: Option<Datatype>,
    /// What its elements are, if it is predefined.
    kind: Option<Kind>,
}

impl Layout {
    /// Whether the MPI library has this predefined operator for it, though han has not.
    pub(crate) fn is_reduced_by(&self, operator: Operator) -> bool {
        use Operator::{Land, Lor, Lxor, Max, Maxloc, Min, Minloc, Prod, Sum};
        match self.kind {
            Some(Kind::Logical) => matches!(operator, Land | Lor | Lxor),
            Some(Kind::LongDouble) => matches!(operator, Sum | Prod | Min | Max),
            Some(Kind::TwoReal) => matches!(operator, Minloc | Maxloc),
            _ => false,
        }
    }

    /// What han takes the elements of the datatype `handle` for when the MPI library reduces them: records, where han
    /// has no kernels for them; `None` if they are longer than records, or there are gaps between them, which are not
    /// han's to write to.
    pub(crate) fn unit(&self, handle: Word) -> Option<Datatype> {
        if self.kernels.is_some() {
            return self.kernels;
        }
        if has_gaps(handle, self.size)? { None } else { Datatype::record(self.size) }
    }
}

/// The predefined datatypes by their handles.
pub(crate) struct Datatypes {
    known: Table<Predefined>,
    flavour: Flavour,
    /// `MPI_DATATYPE_NULL`.
    null: Word,
    /// A communicator that returns errors.
    silent: Word,
    derived: Derived,
}

/// A predefined datatype; the library is asked for its layout when the program uses it, since it may lack it.
struct Predefined {
    kind: Kind,
    layout: OnceCell<Option<Layout>>,
}

impl Datatypes {
    pub(crate) fn new(abi: &Abi, silent: Word) -> Self {
        let entry = |&(handle, kind): &(Word, Kind)| (handle, Predefined { kind, layout: OnceCell::new() });
        let known = Table::new(abi.datatypes.iter().map(entry));
        Self { known, flavour: abi.flavour, null: abi.datatype_null, silent, derived: Derived::new(abi) }
    }

    /// Whether it is one of the MPI's own, which nobody can free.
    pub(crate) fn is_predefined(&self, handle: Word) -> bool {
        self.known.get(handle).is_some()
    }

    /// The layout of a datatype; `None` if it is none.
    #[inline]
    pub(crate) fn layout(&self, handle: Word) -> Option<Layout> {
        match self.known.get(handle) {
            Some(known) => *known.layout.get_or_init(|| predefined(handle, known.kind)),
            None if handle == self.null || !self.flavour.may_be_datatype(handle) => None,
            None => self.derived(handle),
        }
    }
}

impl Datatypes {
    /// The layout of a datatype that the program has made.
    fn derived(&self, handle: Word) -> Option<Layout> {
        let is_contiguous = self.derived.is_contiguous(handle, self.silent, |predefined| {
            size(predefined).and_then(|size| has_gaps(predefined, size)) == Some(false)
        })?;
        let size = size(handle)?;
        Some(Layout { size, is_contiguous, kernels: None, kind: None })
    }
}

/// The layout of a predefined datatype.
fn predefined(handle: Word, kind: Kind) -> Option<Layout> {
    let size = size(handle)?;
    let (lower, extent) = extent(handle)?;
    let kernels = kernels(kind, size).filter(|datatype| datatype.size() == extent);
    Some(Layout { size, is_contiguous: lower == 0 && extent == size, kernels, kind: Some(kind) })
}

/// What has the arithmetic of elements of that kind and size.
fn kernels(kind: Kind, size: usize) -> Option<Datatype> {
    Some(match (kind, size) {
        (Kind::Signed, 1) => Datatype::Int8,
        (Kind::Signed, 2) => Datatype::Int16,
        (Kind::Signed, 4) => Datatype::Int32,
        (Kind::Signed, 8) => Datatype::Int64,
        (Kind::Unsigned, 1) => Datatype::Uint8,
        (Kind::Unsigned, 2) => Datatype::Uint16,
        (Kind::Unsigned, 4) => Datatype::Uint32,
        (Kind::Unsigned, 8) => Datatype::Uint64,
        (Kind::Float, 2) => Datatype::Float16,
        (Kind::Bfloat, 2) => Datatype::Bfloat16,
        (Kind::Float, 4) => Datatype::Float,
        (Kind::Float, 8) => Datatype::Double,
        (Kind::Complex, 8) => Datatype::ComplexFloat,
        (Kind::Complex, 16) => Datatype::ComplexDouble,
        (Kind::Bool, 1) => Datatype::Bool,
        (Kind::Byte, 1) => Datatype::Byte,
        (Kind::FloatInt, 8) => Datatype::FloatInt,
        (Kind::DoubleInt, 12) => Datatype::DoubleInt,
        (Kind::LongInt, 12) => Datatype::LongInt,
        (Kind::TwoInt, 8) => Datatype::TwoInt,
        (Kind::ShortInt, 6) => Datatype::ShortInt,
        _ => return None,
    })
}

fn size(handle: Word) -> Option<usize> {
    let mut size = 0;
    // SAFETY: the handle is the program's, or one that the library has defined; there is room for the answer.
    let code = unsafe { (real().type_size)(handle, &raw mut size) };
    if code == SUCCESS { usize::try_from(size).ok() } else { None }
}

/// Whether there are gaps between elements of that size, or within them.
fn has_gaps(handle: Word, size: usize) -> Option<bool> {
    Some(extent(handle)? != (0, size) || true_extent(handle)? != (0, size))
}

/// Lower bound, and bytes from one element to the next.
fn extent(handle: Word) -> Option<(isize, usize)> {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: as in `size`.
    let code = unsafe { (real().type_get_extent)(handle, &raw mut lower, &raw mut extent) };
    if code == SUCCESS { Some((lower, usize::try_from(extent).ok()?)) } else { None }
}

/// The first byte of an element's data, and how many there are from there to its last.
fn true_extent(handle: Word) -> Option<(isize, usize)> {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: as in `size`.
    let code = unsafe { (real().type_get_true_extent)(handle, &raw mut lower, &raw mut extent) };
    if code == SUCCESS { Some((lower, usize::try_from(extent).ok()?)) } else { None }
}

/// A few values by handle, that never change: open addressing.
pub(crate) struct Table<T> {
    places: Vec<Option<(Word, T)>>,
}

impl<T> Table<T> {
    pub(crate) fn new(entries: impl Iterator<Item = (Word, T)>) -> Self {
        let entries: Vec<_> = entries.collect();
        let mut table = Self { places: Vec::new() };
        table.places.resize_with((4 * entries.len()).next_power_of_two().max(2), || None);
        for (handle, value) in entries {
            let place = table.find(handle);
            // Two names of one object: the first one counts.
            table.places[place].get_or_insert((handle, value));
        }
        table
    }

    #[inline]
    pub(crate) fn get(&self, handle: Word) -> Option<&T> {
        self.places[self.find(handle)].as_ref().map(|(_, value)| value)
    }

    /// Where the handle is, or would be.
    #[inline]
    fn find(&self, handle: Word) -> usize {
        let mask = self.places.len() - 1;
        // Fibonacci hashing; the upper bits are the good ones.
        let mut place = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) & mask;
        while self.places[place].as_ref().is_some_and(|(known, _)| *known != handle) {
            place = (place + 1) & mask;
        }
        place
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_table_finds_what_is_in_it_and_nothing_else() {
        let handles = (0..60).map(|n| 0x4c00_0000 + n * 257);
        let table = Table::new(handles.clone().map(|handle| (handle, handle + 1)));
        assert!(handles.clone().all(|handle| table.get(handle) == Some(&(handle + 1))));
        assert!((0..60).all(|n| table.get(0x4c00_0001 + n * 257).is_none()));
    }
}
