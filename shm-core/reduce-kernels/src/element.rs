//! The Rust types that stand for datatypes, laid out as C lays them out.
#![allow(unsafe_code)] // `Element` promises a memory layout, which only an unsafe trait can carry.

use crate::Datatype;
use half::{bf16, f16};

/// A Rust type whose slices can be sent and reduced.
///
/// Beside the types here a program may have its own as a [record](Datatype::Record), which its own operators reduce
/// (a program of crate `han` writes `han::` for `reduce_kernels::`):
///
/// ```
/// use reduce_kernels::{Call, Datatype, Element, UserOperator};
///
/// /// Samples, as many as `count`.
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Samples {
///     count: u64,
///     mean: f64,
///     squares: f64,
/// }
///
/// // SAFETY: `repr(C)` without padding, and valid for every bit pattern.
/// unsafe impl Element for Samples {
///     const DATATYPE: Datatype = Datatype::record_of::<Self>();
/// }
///
/// let join = UserOperator::elementwise(true, |a: Samples, b: Samples| {
///     let (m, n) = (a.count as f64, b.count as f64);
///     let (count, apart) = (m + n, b.mean - a.mean);
///     let mean = a.mean + apart * n / count;
///     Samples { count: a.count + b.count, mean, squares: a.squares + b.squares + apart * apart * m * n / count }
/// });
/// let mut samples = [Samples { count: 2, mean: 1.5, squares: 0.5 }; 8];
/// let call = Call::allreduce_in_place(&mut samples, join.into());
/// assert_eq!(call.to_string(), "allreduce(count 8, record of 24 bytes, user operator)");
/// ```
///
/// # Safety
///
/// The type must have the size, the alignment and the field layout of [`Self::DATATYPE`], and every
/// bit pattern that a kernel of that datatype writes must be a valid value of the type, and so must all
/// bits zero. (For `bool`
/// the kernels write only 0 and 1; all other implementations accept every bit pattern.)
///
/// Records are told apart by their size alone, so the bytes of another type of that size may be read as this one. A type
/// that is a record must therefore accept every bit pattern and have no padding (a field can take its place); its
/// alignment may be less than the datatype's. [`Datatype::record_of`] checks size and alignment.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The datatype of one value.
    const DATATYPE: Datatype;
}

/// A complex number, laid out as C's `_Complex` and Fortran's `complex`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    /// Real part.
    pub re: T,
    /// Imaginary part.
    pub im: T,
}

impl<T> Complex<T> {
    /// `re + i im`
    pub const fn new(re: T, im: T) -> Self {
        Self { re, im }
    }
}

/// A value and where it was found: the operand of `minloc` and `maxloc`, laid out as the C struct
/// of MPI's pair types. Padding, where the C struct has any, has no defined content.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Pair<V> {
    /// What is compared.
    pub value: V,
    /// Where it is; the lesser index wins among equal values.
    pub index: i32,
}

impl<V> Pair<V> {
    /// The pair `(value, index)`.
    pub const fn new(value: V, index: i32) -> Self {
        Self { value, index }
    }
}

/// `MPI_FLOAT_INT`
pub type FloatInt = Pair<f32>;
/// `MPI_DOUBLE_INT`
pub type DoubleInt = Pair<f64>;
/// `MPI_LONG_INT`, with a `long` of 64 bits
pub type LongInt = Pair<i64>;
/// `MPI_2INT`
pub type TwoInt = Pair<i32>;
/// `MPI_SHORT_INT`
pub type ShortInt = Pair<i16>;

/// Eight bits without arithmetic, `MPI_BYTE`: only the bitwise operators are defined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Byte(pub u8);

macro_rules! elements {
    ($($type:ty = $datatype:ident),* $(,)?) => {$(
        const _: () = assert!(
            size_of::<$type>() == Datatype::$datatype.size()
                && align_of::<$type>() == Datatype::$datatype.align()
        );
        // SAFETY: size and alignment are asserted above; the structs are `repr(C)` with the fields
        // of the C struct that the datatype names. All but `bool` accept every bit pattern, and
        // the kernels of `Bool` (logical operators only) write 0 or 1, or copy the operand.
        unsafe impl Element for $type {
            const DATATYPE: Datatype = Datatype::$datatype;
        }
    )*};
}

elements! {
    i8 = Int8, i16 = Int16, i32 = Int32, i64 = Int64,
    u8 = Uint8, u16 = Uint16, u32 = Uint32, u64 = Uint64,
    f16 = Float16, bf16 = Bfloat16, f32 = Float, f64 = Double,
    Complex<f32> = ComplexFloat, Complex<f64> = ComplexDouble,
    bool = Bool, Byte = Byte,
    FloatInt = FloatInt, DoubleInt = DoubleInt, LongInt = LongInt, TwoInt = TwoInt,
    ShortInt = ShortInt,
}
