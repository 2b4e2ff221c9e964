//! The kernels over slices, safe.
#![allow(unsafe_code)] // Hands slices to the kernels as raw pointers.

use crate::{Datatype, Element, Kernel, Operator, kernel};

/// Slices that cannot be reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The operator has no meaning on the datatype.
    #[error("{operator} is not defined on {datatype}")]
    Undefined {
        /// The operator asked for.
        operator: Operator,
        /// The datatype of the slices.
        datatype: Datatype,
    },
    /// A source is shorter or longer than the destination.
    #[error("the destination has {expected} elements, source {source_index} has {found}")]
    Length {
        /// Which source, from 0.
        source_index: usize,
        /// Elements in the destination.
        expected: usize,
        /// Elements in the source.
        found: usize,
    },
}

/// `inout[i] = inout[i] op src[i]`
///
/// # Errors
///
/// If the operator is not defined on the datatype, or the lengths differ.
pub fn reduce_into<T: Element>(inout: &mut [T], src: &[T], operator: Operator) -> Result<(), KernelError> {
    let kernel = defined::<T>(operator)?;
    check_length(0, inout.len(), src.len())?;
    // SAFETY: both slices have `inout.len()` elements of the kernel's datatype (`Element`) and,
    // being borrowed mutably and immutably at once, do not overlap.
    unsafe { (kernel.two)(inout.as_mut_ptr().cast(), src.as_ptr().cast(), inout.len()) };
    Ok(())
}

/// `dst[i] = (srcs[0][i] op srcs[1][i]) op srcs[2][i] ...`; without sources, `dst` stays as it is.
///
/// # Errors
///
/// If the operator is not defined on the datatype, or a length differs from that of `dst`.
pub fn reduce_many<T: Element>(dst: &mut [T], srcs: &[&[T]], operator: Operator) -> Result<(), KernelError> {
    let kernel = defined::<T>(operator)?;
    for (index, src) in srcs.iter().enumerate() {
        check_length(index, dst.len(), src.len())?;
    }
    let pointers: Vec<*const u8> = srcs.iter().map(|src| src.as_ptr().cast()).collect();
    // SAFETY: every slice has `dst.len()` elements of the kernel's datatype (`Element`), and none
    // overlaps `dst`, which is borrowed mutably.
    unsafe { (kernel.many)(dst.as_mut_ptr().cast(), &pointers, dst.len()) };
    Ok(())
}

fn defined<T: Element>(operator: Operator) -> Result<&'static Kernel, KernelError> {
    let datatype = T::DATATYPE;
    kernel(datatype, operator).ok_or(KernelError::Undefined { operator, datatype })
}

fn check_length(source_index: usize, expected: usize, found: usize) -> Result<(), KernelError> {
    if expected == found { Ok(()) } else { Err(KernelError::Length { source_index, expected, found }) }
}
