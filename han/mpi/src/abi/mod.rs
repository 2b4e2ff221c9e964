//! What the three binary interfaces of MPI call their predefined objects.
//!
//! A handle is a machine word here. In MPICH's interface it is an `int`, so the upper half of its register is anything;
//! in Open MPI's the address of a variable of the library; in that of the MPI 5 standard a small number.

#![allow(unsafe_code)] // Asks the MPI library for its version.

mod mpich;
mod openmpi;
mod standard;

use std::ffi::{CStr, c_int, c_void};
use std::ops::RangeInclusive;

use han::Operator;

use crate::real::{Real, SUCCESS, perhaps, real, variable};

/// A handle of any kind.
pub(crate) type Word = usize;

/// The binary interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Handles are numbers of 32 bits: MPICH, Intel MPI, MVAPICH, Cray MPICH, ParaStation MPI.
    Mpich,
    /// Handles are addresses of the library's variables.
    OpenMpi,
    /// Handles are as the MPI 5 standard has them.
    Standard,
}

/// What the elements of a predefined datatype are; their size, the library is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Integers with a sign.
    Signed,
    /// Integers without.
    Unsigned,
    /// Real numbers in IEEE's formats.
    Float,
    /// The half-width one that is not IEEE's.
    Bfloat,
    /// Complex numbers in IEEE's formats.
    Complex,
    /// C's and C++'s truth values.
    Bool,
    /// Fortran's truth values.
    Logical,
    /// Real numbers in the compiler's own format.
    LongDouble,
    /// Fortran's pairs of real numbers.
    TwoReal,
    /// Bytes without arithmetic.
    Byte,
    /// `struct { float; int }`.
    FloatInt,
    /// `struct { double; int }`.
    DoubleInt,
    /// `struct { long; int }`.
    LongInt,
    /// `struct { int; int }`.
    TwoInt,
    /// `struct { short; int }`.
    ShortInt,
    /// What is not reduced: characters.
    Opaque,
}

/// The constants of one binary interface, with the handles that this process has for them.
pub(crate) struct Abi {
    pub(crate) flavour: Flavour,
    pub(crate) comm_world: Word,
    pub(crate) comm_self: Word,
    pub(crate) comm_null: Word,
    pub(crate) byte: Word,
    errors_return: Word,
    errors_are_fatal: Word,
    pub(crate) datatype_null: Word,
    pub(crate) request_null: Word,
    pub(crate) op_null: Word,
    /// `MPI_IN_PLACE`.
    pub(crate) in_place: usize,
    pub(crate) thread_multiple: c_int,
    pub(crate) err_other: c_int,
    pub(crate) err_in_status: c_int,
    pub(crate) status: Status,
    /// `MPI_COMBINER_NAMED`.
    pub(crate) combiner_named: c_int,
    /// `MPI_COMBINER_F90_REAL`, `_COMPLEX` and `_INTEGER`.
    pub(crate) combiners_f90: RangeInclusive<c_int>,
    /// `MPI_COMBINER_VALUE_INDEX`, if there is one.
    pub(crate) combiner_value_index: Option<c_int>,
    pub(crate) datatypes: Vec<(Word, Kind)>,
    pub(crate) operators: Vec<(Word, Operator)>,
    /// Predefined operators that no collective has, where handles do not say that they are predefined.
    pub(crate) no_operators: Vec<Word>,
}

/// What an `MPI_Status` looks like.
pub(crate) struct Status {
    bytes: usize,
    /// Where `MPI_ERROR` is in it.
    error_at: usize,
    /// `MPI_STATUSES_IGNORE`.
    ignore: usize,
}

impl Status {
    /// Where `MPI_ERROR` is in the status of that index, unless the program wants none.
    pub(crate) fn error_in(&self, statuses: *mut c_void, index: usize) -> Option<*mut c_int> {
        let place = statuses.wrapping_byte_add(index * self.bytes + self.error_at);
        (statuses.addr() != self.ignore).then(|| place.cast())
    }

    /// Whether a status is the empty one: that of no message, whose tag is `MPI_ANY_TAG`, while those of messages are not negative.
    ///
    /// # Safety
    /// There is a status.
    pub(crate) unsafe fn is_empty(&self, status: *const c_void) -> bool {
        // In all of them the tag stands before the error.
        let tag = status.wrapping_byte_add(self.error_at - size_of::<c_int>()).cast::<c_int>();
        // SAFETY: as the caller vouches.
        let tag = unsafe { tag.read() };
        tag < 0
    }
}

/// `MPI_UNDEFINED`, in all of them.
pub(crate) const UNDEFINED: c_int = -32766;

impl Flavour {
    /// The handle that a register's word stands for.
    #[inline]
    pub(crate) fn word(self, register: Word) -> Word {
        if self == Self::Mpich { register & 0xffff_ffff } else { register }
    }

    /// Whether a handle may be a datatype's, as far as it says itself: the library, asked of another, calls the error
    /// handler of `MPI_COMM_WORLD`.
    pub(crate) fn may_be_datatype(self, handle: Word) -> bool {
        match self {
            // From the top, two bits that are zero in no object's, and four for the class.
            Self::Mpich => handle >> 30 != 0 && handle >> 26 & 0xf == 3,
            Self::OpenMpi => handle != 0,
            // Predefined ones are numbers of ten bits, the first of which datatypes have for themselves.
            Self::Standard => handle >> 9 == 1 || handle >> 12 != 0,
        }
    }

    /// Whether a handle may be that of a communicator; the error of another is the call's alone.
    pub(crate) fn may_be_communicator(self, handle: Word) -> bool {
        match self {
            Self::Mpich => handle >> 30 != 0 && handle >> 26 & 0xf == 1,
            Self::OpenMpi => handle != 0,
            // Predefined are `MPI_COMM_WORLD` and `MPI_COMM_SELF`.
            Self::Standard => matches!(handle, 0x101 | 0x102) || handle >> 12 != 0,
        }
    }

    /// Whether a handle may be that of an operator that the program has made.
    pub(crate) fn may_be_made_operator(self, handle: Word) -> bool {
        match self {
            // The upper one of the first two bits is set in handles of made objects.
            Self::Mpich => handle >> 31 != 0 && handle >> 26 & 0xf == 6,
            Self::OpenMpi => handle != 0,
            Self::Standard => handle >> 12 != 0,
        }
    }

    /// Where the handle of that index is in an array of the program's.
    pub(crate) fn element(self, array: *mut Word, index: usize) -> *mut Word {
        let bytes = if self == Self::Mpich { size_of::<u32>() } else { size_of::<Word>() };
        array.wrapping_byte_add(index * bytes)
    }
}

impl Flavour {
    /// Finds out which interface the program's library has.
    pub(crate) fn detect(real: &Real) -> Self {
        // MPICH has the function in its own interface, too, and says -1 there.
        if real.abi_version().is_some_and(|major| major >= 1) {
            return Self::Standard;
        }
        if variable(c"ompi_mpi_comm_world").is_some() { Self::OpenMpi } else { Self::Mpich }
    }
}

impl Abi {
    /// The interface that the program's library has.
    pub(crate) fn detect(real: &Real) -> Self {
        match Flavour::detect(real) {
            Flavour::Standard => standard::abi(),
            Flavour::OpenMpi => openmpi::abi(),
            Flavour::Mpich => mpich::abi(),
        }
    }

    /// `MPI_ERRORS_RETURN`. Libraries with the standard's interface have two different numbers for it: there it is the handler
    /// that `MPI_FILE_NULL` has. MPI is initialised.
    pub(crate) fn errors_return(&self) -> Word {
        type Ask = unsafe extern "C-unwind" fn(Word, *mut Word) -> c_int;
        const FILE_NULL: Word = 0x118;
        let mut handler = self.errors_return;
        if self.flavour == Flavour::Standard
            && let Some(ask) = perhaps!(c"PMPI_File_get_errhandler", Ask)
        {
            // SAFETY: the handle is predefined, and there is room for another.
            unsafe { ask(FILE_NULL, &raw mut handler) };
        }
        handler
    }

    /// Whether a communicator that answers with this handler may have none of its own: MPICH then asks that of the world.
    pub(crate) fn may_be_none(&self, handler: Word) -> bool {
        self.flavour != Flavour::OpenMpi && handler == self.errors_are_fatal
    }

    /// Whether a handler is `MPI_ERRORS_RETURN`.
    pub(crate) fn is_errors_return(&self, handler: Word) -> bool {
        handler == self.errors_return || handler == self.errors_return()
    }

    /// Whether the library reports a buffer that is input and result of a reduction, which its users may have told it not to.
    /// `silent` is a communicator of this rank alone that returns errors.
    pub(crate) fn finds_aliases(&self, silent: Word) -> bool {
        if self.flavour == Flavour::OpenMpi {
            return openmpi::checks_arguments();
        }
        let Some((or, _)) = self.operators.iter().find(|(_, operator)| *operator == Operator::Bor) else { return true };
        let mut byte = 0_u8;
        let place: *mut c_void = (&raw mut byte).cast();
        // Of all reductions this is the one that does nothing on one rank: others copy, and MPICH may end a program that has
        // them copy a buffer to itself.
        // SAFETY: there is a byte, and the communicator is this rank's alone.
        let code = unsafe { (real().exscan)(place.cast_const(), place, 1, self.byte, *or, silent) };
        code != SUCCESS
    }

    /// Whose error handler hears of what is no object's matter: `MPI_COMM_SELF`'s since MPI 4, `MPI_COMM_WORLD`'s before.
    pub(crate) fn comm_of_no_object(&self) -> Word {
        let (mut version, mut subversion) = (0, 0);
        // SAFETY: there is room for two numbers.
        unsafe { (real().get_version)(&raw mut version, &raw mut subversion) };
        if version >= 4 { self.comm_self } else { self.comm_world }
    }
}

/// The addresses of those of the library's variables that exist.
fn addresses<T: Copy>(names: &[(&CStr, T)]) -> Vec<(Word, T)> {
    names.iter().filter_map(|(name, what)| Some((variable(name)?, *what))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_datatypes_look_like_it() {
        for (abi, made) in [(mpich::abi(), [0x8c00_0000, 0xcc00_0001]), (standard::abi(), [0x1000, 0x7f00_1234_5670])] {
            let may = |handle| abi.flavour.may_be_datatype(handle);
            assert!(abi.datatypes.iter().all(|&(handle, _)| may(handle)));
            assert!(made.into_iter().all(may));
            assert!(abi.operators.iter().all(|&(handle, _)| !may(handle)));
            assert!(![0, abi.comm_world, abi.comm_null].into_iter().any(may));
        }
    }

    #[test]
    fn handles_of_communicators_and_operators_look_like_it() {
        for (abi, comm, op) in [(mpich::abi(), 0x8400_0000, 0x9800_0000), (standard::abi(), 0x1000, 0x7f00_1234_5670)] {
            let is_comm = |handle| abi.flavour.may_be_communicator(handle);
            let is_op = |handle| abi.flavour.may_be_made_operator(handle);
            assert!([abi.comm_world, abi.comm_self, comm].into_iter().all(is_comm) && is_op(op));
            assert!(![0, abi.comm_null, abi.byte, abi.op_null].into_iter().any(is_comm));
            assert!(![0, abi.comm_null, abi.byte, abi.op_null].into_iter().any(is_op));
            assert!(!abi.operators.iter().any(|&(handle, _)| is_op(handle)));
        }
    }
}
