//! The datatypes that can be reduced, with their sizes, names and wire codes.

use std::fmt;

/// What one element of a buffer is.
///
/// The discriminants are the codes that cross process and language boundaries (fingerprints,
/// `HAN_*` constants, user operators); they are never renumbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)] // The names say it; the table in `layout` gives size, alignment and name.
pub enum Datatype {
    Int8 = 0,
    Int16 = 1,
    Int32 = 2,
    Int64 = 3,
    Uint8 = 4,
    Uint16 = 5,
    Uint32 = 6,
    Uint64 = 7,
    Float16 = 8,
    Bfloat16 = 9,
    Float = 10,
    Double = 11,
    ComplexFloat = 12,
    ComplexDouble = 13,
    /// C's `_Bool`. Kernels take any non-zero byte as true.
    Bool = 14,
    /// Eight bits without arithmetic.
    Byte = 15,
    /// C's `struct { float value; int index; }`.
    FloatInt = 16,
    /// C's `struct { double value; int index; }`: 16 bytes, the last four are padding.
    DoubleInt = 17,
    /// C's `struct { long value; int index; }`, `long` having 64 bits: 16 bytes, four of padding.
    LongInt = 18,
    /// C's `struct { int value; int index; }`.
    TwoInt = 19,
    /// C's `struct { short value; int index; }`: 8 bytes, two of padding inside.
    ShortInt = 20,
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
        SIZES[self as usize]
    }

    /// Alignment in bytes that a typed slice of this datatype has. Kernels do not need it.
    #[must_use]
    pub const fn align(self) -> usize {
        self.layout().1
    }

    /// The name in messages and on command lines: `f32`, `complex_f64`, `double_int`, ...
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.layout().2
    }

    pub(crate) const fn class(self) -> Class {
        self.layout().3
    }

    /// The number that stands for this datatype outside Rust.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The datatype with this code, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The datatype with this [`name`](Self::name), if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|datatype| datatype.name() == name)
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}
