//! The datatypes that can be reduced, with their sizes, names and codes.

use std::fmt;

/// What one element of a buffer is: one of [`ALL`](Self::ALL), which built-in operators reduce, or a record, which only
/// users' operators do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)] // The names say it; the table in `layout` gives size, alignment and name.
pub enum Datatype {
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Bfloat16,
    Float,
    Double,
    ComplexFloat,
    ComplexDouble,
    /// C's `_Bool`. Kernels take any non-zero byte as true.
    Bool,
    /// Eight bits without arithmetic.
    Byte,
    /// C's `struct { float value; int index; }`.
    FloatInt,
    /// C's `struct { double value; int index; }`: 16 bytes, the last four are padding.
    DoubleInt,
    /// C's `struct { long value; int index; }`, `long` having 64 bits: 16 bytes, four of padding.
    LongInt,
    /// C's `struct { int value; int index; }`.
    TwoInt,
    /// C's `struct { short value; int index; }`: 8 bytes, two of padding inside.
    ShortInt,
    /// So many bytes, of which only the user's operators know what they are. [`record`](Self::record) makes one.
    Record(RecordBytes),
}

/// The size of a record: 1 to [`Datatype::MOST_RECORD_BYTES`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordBytes(u16);

impl RecordBytes {
    /// The number of bytes.
    #[must_use]
    #[inline]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// The classes by which MPI's table says what is defined (MPI 4.1, section 6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Integer,
    FloatingPoint,
    Complex,
    Logical,
    Byte,
    Pair,
    Record,
}

impl Datatype {
    /// Every datatype, in the order of the codes.
    pub const ALL: [Self; 21] = [
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Float16,
        Self::Bfloat16,
        Self::Float,
        Self::Double,
        Self::ComplexFloat,
        Self::ComplexDouble,
        Self::Bool,
        Self::Byte,
        Self::FloatInt,
        Self::DoubleInt,
        Self::LongInt,
        Self::TwoInt,
        Self::ShortInt,
    ];

    /// A record is no longer: so it fits into the smallest cell of `shm-core`.
    pub const MOST_RECORD_BYTES: usize = 1024;

    /// No type of C asks for more.
    const MOST_ALIGN: usize = 16;

    /// Records have [codes](Self::code) from here on, by their size.
    pub const RECORD_CODES: u16 = 4096;

    /// No code is greater.
    pub(crate) const MOST_CODE: usize = Self::RECORD_CODES as usize + Self::MOST_RECORD_BYTES;

    /// Rows of a table by datatype: one for each of [`ALL`](Self::ALL), and the last one for all records.
    pub(crate) const ROWS: usize = Self::ALL.len() + 1;

    /// A record of `bytes` bytes; `None` unless these are 1 to [`MOST_RECORD_BYTES`](Self::MOST_RECORD_BYTES).
    #[must_use]
    pub const fn record(bytes: usize) -> Option<Self> {
        #[allow(clippy::cast_possible_truncation)] // at most 1024
        match bytes {
            1..=Self::MOST_RECORD_BYTES => Some(Self::Record(RecordBytes(bytes as u16))),
            _ => None,
        }
    }

    /// The record that a `T` is, for [`Element::DATATYPE`](crate::Element::DATATYPE).
    ///
    /// # Panics
    /// When compiled, where it is used in a constant: `T` has no bytes, more than a record has, or an alignment of
    /// more than 16.
    #[must_use]
    pub const fn record_of<T>() -> Self {
        assert!(align_of::<T>() <= Self::MOST_ALIGN, "a record is aligned to at most 16 bytes");
        Self::record(size_of::<T>()).expect("a record has 1 to 1024 bytes")
    }

    /// Size in bytes, alignment in bytes, name, class.
    const fn layout(self) -> (usize, usize, &'static str, Class) {
        use Class::{Byte, Complex, FloatingPoint, Integer, Logical, Pair};
        match self {
            Self::Int8 => (1, 1, "i8", Integer),
            Self::Int16 => (2, 2, "i16", Integer),
            Self::Int32 => (4, 4, "i32", Integer),
            Self::Int64 => (8, 8, "i64", Integer),
            Self::Uint8 => (1, 1, "u8", Integer),
            Self::Uint16 => (2, 2, "u16", Integer),
            Self::Uint32 => (4, 4, "u32", Integer),
            Self::Uint64 => (8, 8, "u64", Integer),
            Self::Float16 => (2, 2, "f16", FloatingPoint),
            Self::Bfloat16 => (2, 2, "bf16", FloatingPoint),
            Self::Float => (4, 4, "f32", FloatingPoint),
            Self::Double => (8, 8, "f64", FloatingPoint),
            Self::ComplexFloat => (8, 4, "complex_f32", Complex),
            Self::ComplexDouble => (16, 8, "complex_f64", Complex),
            Self::Bool => (1, 1, "bool", Logical),
            Self::Byte => (1, 1, "byte", Byte),
            Self::FloatInt => (8, 4, "float_int", Pair),
            Self::DoubleInt => (16, 8, "double_int", Pair),
            Self::LongInt => (16, 8, "long_int", Pair),
            Self::TwoInt => (8, 4, "two_int", Pair),
            Self::ShortInt => (8, 4, "short_int", Pair),
            Self::Record(bytes) => (bytes.get(), record_align(bytes.get()), "record", Class::Record),
        }
    }

    /// Its row in a table by datatype. They stand in the order of the variants, so nothing is computed here.
    #[inline]
    pub(crate) const fn row(self) -> usize {
        match self {
            Self::Int8 => 0,
            Self::Int16 => 1,
            Self::Int32 => 2,
            Self::Int64 => 3,
            Self::Uint8 => 4,
            Self::Uint16 => 5,
            Self::Uint32 => 6,
            Self::Uint64 => 7,
            Self::Float16 => 8,
            Self::Bfloat16 => 9,
            Self::Float => 10,
            Self::Double => 11,
            Self::ComplexFloat => 12,
            Self::ComplexDouble => 13,
            Self::Bool => 14,
            Self::Byte => 15,
            Self::FloatInt => 16,
            Self::DoubleInt => 17,
            Self::LongInt => 18,
            Self::TwoInt => 19,
            Self::ShortInt => 20,
            Self::Record(_) => Self::ALL.len(),
        }
    }

    /// Bytes from one element to the next.
    #[must_use]
    #[inline]
    pub const fn size(self) -> usize {
        const SIZES: [usize; Datatype::ALL.len()] = {
            let mut sizes = [0; Datatype::ALL.len()];
            let mut i = 0;
            while i < sizes.len() {
                sizes[i] = Datatype::ALL[i].layout().0;
                i += 1;
            }
            sizes
        };
        match self {
            Self::Record(bytes) => bytes.get(),
            builtin => SIZES[builtin.row()],
        }
    }

    /// True for floats of 16 bits, of which partial results are not kept in 16 bits on one node.
    #[must_use]
    #[inline]
    pub const fn is_short_float(self) -> bool {
        matches!(self, Self::Float16 | Self::Bfloat16)
    }

    /// Alignment in bytes that a typed slice of this datatype has, and that users' operators are promised; of a record
    /// the largest power of two that divides its size, at most 16. Kernels do not need it.
    #[must_use]
    pub const fn align(self) -> usize {
        self.layout().1
    }

    /// The name in messages and on command lines: `f32`, `complex_f64`, `double_int`, ... All records have the same;
    /// [`Display`](fmt::Display) tells their size.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.layout().2
    }

    pub(crate) const fn class(self) -> Class {
        self.layout().3
    }

    /// The number that crosses process and language boundaries for this datatype (fingerprints, `HAN_*` constants, user
    /// operators): its place in [`ALL`](Self::ALL), or 4096 and the bytes of a record. They are never renumbered.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u16 {
        match self {
            Self::Record(RecordBytes(bytes)) => Self::RECORD_CODES + bytes,
            #[allow(clippy::cast_possible_truncation)] // one of few rows
            builtin => builtin.row() as u16,
        }
    }

    /// The datatype with this code, if there is one.
    #[must_use]
    #[inline]
    pub fn from_code(code: u16) -> Option<Self> {
        match code.checked_sub(Self::RECORD_CODES) {
            Some(bytes) => Self::record(usize::from(bytes)),
            None => Self::ALL.get(usize::from(code)).copied(),
        }
    }
}

/// What any type of C of this size has, or more: a type's alignment divides its size.
const fn record_align(bytes: usize) -> usize {
    let divisor = 1 << bytes.trailing_zeros();
    if divisor < Datatype::MOST_ALIGN { divisor } else { Datatype::MOST_ALIGN }
}

impl fmt::Display for Datatype {
    /// The name, or for instance `record of 24 bytes`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(bytes) => formatter.pad(&format!("record of {} bytes", bytes.get())),
            builtin => formatter.pad(builtin.name()),
        }
    }
}
