//! A table of kernels by datatype and operator, built at compile time for one instruction set.
#![allow(unsafe_code)] // Declares the unsafe functions that every instruction set implements.

use super::combine::{Band, Bor, Bxor, Combine, Land, Lor, Lxor, Max, Maxloc, Min, Minloc, Prod, Sum};
use super::{Isa, Kernel};
use crate::{Complex, Datatype, Operator, Pair};
use half::bf16;

/// The loops of the kernels, compiled for one instruction set.
pub(super) trait Backend {
    const ISA: Isa;
    /// How half precision is converted: `f16` for the portable way.
    type Half: Copy;

    /// # Safety
    ///
    /// See [`Kernel`], whose `two` this is.
    unsafe fn two<T: Copy, O: Combine<T>>(inout: *mut u8, src: *const u8, count: usize) {
        // SAFETY: `three` allows its destination as a source; the rest the caller promises.
        unsafe { Self::three::<T, O>(inout, inout, src, count) }
    }

    /// # Safety
    ///
    /// See [`Kernel`], whose `three` this is.
    unsafe fn three<T: Copy, O: Combine<T>>(dst: *mut u8, a: *const u8, b: *const u8, count: usize);

    /// # Safety
    ///
    /// See [`Kernel`], whose `many` this is.
    unsafe fn many<T: Copy, O: Combine<T>>(dst: *mut u8, srcs: &[*const u8], count: usize);
}

/// One kernel for every pair that is defined; none in the last row, which is that of records.
pub(super) struct Table([[Option<Kernel>; Operator::ALL.len()]; Datatype::ROWS]);

impl Table {
    pub(super) const fn new<B: Backend>() -> Self
    where
        Sum: Combine<B::Half>,
        Prod: Combine<B::Half>,
        Min: Combine<B::Half>,
        Max: Combine<B::Half>,
    {
        let mut table = Self([[None; Operator::ALL.len()]; Datatype::ROWS]);
        table.integer::<B, i8>(Datatype::Int8);
        table.integer::<B, i16>(Datatype::Int16);
        table.integer::<B, i32>(Datatype::Int32);
        table.integer::<B, i64>(Datatype::Int64);
        table.integer::<B, u8>(Datatype::Uint8);
        table.integer::<B, u16>(Datatype::Uint16);
        table.integer::<B, u32>(Datatype::Uint32);
        table.integer::<B, u64>(Datatype::Uint64);
        table.floating_point::<B, B::Half>(Datatype::Float16);
        table.floating_point::<B, bf16>(Datatype::Bfloat16);
        table.floating_point::<B, f32>(Datatype::Float);
        table.floating_point::<B, f64>(Datatype::Double);
        table.complex::<B, Complex<f32>>(Datatype::ComplexFloat);
        table.complex::<B, Complex<f64>>(Datatype::ComplexDouble);
        table.logical::<B, u8>(Datatype::Bool);
        table.bitwise::<B, u8>(Datatype::Byte);
        table.pair::<B, Pair<f32>>(Datatype::FloatInt);
        table.pair::<B, Pair<f64>>(Datatype::DoubleInt);
        table.pair::<B, Pair<i64>>(Datatype::LongInt);
        table.pair::<B, Pair<i32>>(Datatype::TwoInt);
        table.pair::<B, Pair<i16>>(Datatype::ShortInt);
        table
    }

    #[inline]
    pub(super) fn get(&self, datatype: Datatype, operator: Operator) -> Option<&Kernel> {
        self.0[datatype.row()][operator as usize].as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Kernel> {
        self.0.iter().flatten().flatten()
    }

    const fn integer<B: Backend, T: Copy>(&mut self, datatype: Datatype)
    where
        Sum: Combine<T>,
        Prod: Combine<T>,
        Min: Combine<T>,
        Max: Combine<T>,
        Land: Combine<T>,
        Lor: Combine<T>,
        Lxor: Combine<T>,
        Band: Combine<T>,
        Bor: Combine<T>,
        Bxor: Combine<T>,
    {
        self.floating_point::<B, T>(datatype);
        self.logical::<B, T>(datatype);
        self.bitwise::<B, T>(datatype);
    }

    const fn floating_point<B: Backend, T: Copy>(&mut self, datatype: Datatype)
    where
        Sum: Combine<T>,
        Prod: Combine<T>,
        Min: Combine<T>,
        Max: Combine<T>,
    {
        self.complex::<B, T>(datatype);
        self.set::<B, T, Min>(datatype);
        self.set::<B, T, Max>(datatype);
    }

    const fn complex<B: Backend, T: Copy>(&mut self, datatype: Datatype)
    where
        Sum: Combine<T>,
        Prod: Combine<T>,
    {
        self.set::<B, T, Sum>(datatype);
        self.set::<B, T, Prod>(datatype);
    }

    const fn logical<B: Backend, T: Copy>(&mut self, datatype: Datatype)
    where
        Land: Combine<T>,
        Lor: Combine<T>,
        Lxor: Combine<T>,
    {
        self.set::<B, T, Land>(datatype);
        self.set::<B, T, Lor>(datatype);
        self.set::<B, T, Lxor>(datatype);
    }

    const fn bitwise<B: Backend, T: Copy>(&mut self, datatype: Datatype)
    where
        Band: Combine<T>,
        Bor: Combine<T>,
        Bxor: Combine<T>,
    {
        self.set::<B, T, Band>(datatype);
        self.set::<B, T, Bor>(datatype);
        self.set::<B, T, Bxor>(datatype);
    }

    const fn pair<B: Backend, T: Copy>(&mut self, datatype: Datatype)
    where
        Minloc: Combine<T>,
        Maxloc: Combine<T>,
    {
        self.set::<B, T, Minloc>(datatype);
        self.set::<B, T, Maxloc>(datatype);
    }

    const fn set<B: Backend, T: Copy, O: Combine<T>>(&mut self, datatype: Datatype) {
        assert!(size_of::<T>() == datatype.size());
        self.0[datatype.row()][O::OPERATOR as usize] = Some(Kernel {
            datatype,
            operator: O::OPERATOR,
            isa: B::ISA,
            two: B::two::<T, O>,
            three: B::three::<T, O>,
            many: B::many::<T, O>,
        });
    }
}
