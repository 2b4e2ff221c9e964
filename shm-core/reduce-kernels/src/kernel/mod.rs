//! The kernels: one table per instruction set, the best one chosen once.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod combine;
#[cfg(target_arch = "x86_64")]
mod f16c;
mod loops;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod table;

use crate::{Datatype, Operator};
use std::fmt;
use std::sync::OnceLock;
use table::Table;

/// `dst[i] = srcs[0][i] op srcs[1][i] op ...` for `count` elements.
pub type ManyFn = unsafe fn(dst: *mut u8, srcs: &[*const u8], count: usize);
/// `inout[i] = inout[i] op src[i]` for `count` elements.
pub type TwoFn = unsafe fn(inout: *mut u8, src: *const u8, count: usize);
/// `dst[i] = a[i] op b[i]` for `count` elements.
pub type ThreeFn = unsafe fn(dst: *mut u8, a: *const u8, b: *const u8, count: usize);

/// The functions that reduce one datatype by one operator with one instruction set.
///
/// # Safety
///
/// Of all three: the instruction set must be [available](Isa::is_available), which holds for every
/// kernel that [`kernel`] and [`kernel_for`] give out. The destination must be valid for writes and
/// the sources for reads of `count` elements, at any alignment, and nobody else may write to them
/// during the call. Each source either starts exactly where the destination starts or does not
/// overlap it.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The datatype of all operands.
    pub datatype: Datatype,
    /// The operator.
    pub operator: Operator,
    /// The instruction set that the functions are compiled for.
    pub isa: Isa,
    /// `inout = inout op src`
    pub two: TwoFn,
    /// `dst = a op b`
    pub three: ThreeFn,
    /// `dst = (srcs[0] op srcs[1]) op srcs[2] ...`, in one pass. One source is copied bit by bit;
    /// none leaves `dst` as it is.
    pub many: ManyFn,
}

/// An instruction set that kernels exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// What every CPU of the architecture has, one element at a time; the oracle of the others.
    Scalar,
    /// `x86_64` with AVX2 and F16C: 32-byte vectors.
    Avx2,
    /// `x86_64` with AVX-512 F, BW, DQ, VL: 64-byte vectors.
    Avx512,
    /// `aarch64` Advanced SIMD: 16-byte vectors.
    Neon,
}

/// An instruction set was asked for that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IsaError {
    /// This CPU, or this build, does not have it.
    #[error("this CPU has no {asked}; the best that it has is {}", Isa::best())]
    Unavailable {
        /// The instruction set asked for.
        asked: Isa,
    },
    /// Kernels have been handed out already.
    #[error("the kernels in use are {chosen}; {asked} must be asked for before the first reduction")]
    AlreadyChosen {
        /// The instruction set asked for.
        asked: Isa,
        /// The one in use.
        chosen: Isa,
    },
}

impl Isa {
    /// Every instruction set, slowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Neon, Self::Avx2, Self::Avx512];

    /// Those that this CPU and this build have, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// The fastest that this CPU and this build have.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::Scalar)
    }

    /// Whether this CPU and this build have it.
    #[must_use]
    pub fn is_available(self) -> bool {
        self.table().is_some()
    }

    /// `scalar`, `neon`, `avx2` or `avx512`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// The kernels, if this CPU can run them.
    fn table(self) -> Option<&'static Table> {
        match self {
            Self::Scalar => Some(&scalar::TABLE),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 if avx2::is_available() => Some(&avx2::TABLE),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 if avx512::is_available() => Some(&avx512::TABLE),
            #[cfg(target_arch = "aarch64")]
            Self::Neon if neon::is_available() => Some(&neon::TABLE),
            _ => None,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The instruction set in use and its kernels; set by the first use or by `override_isa`.
static CHOSEN: OnceLock<(Isa, &'static Table)> = OnceLock::new();

#[inline]
fn chosen() -> &'static (Isa, &'static Table) {
    CHOSEN.get_or_init(|| {
        let isa = Isa::best();
        (isa, isa.table().unwrap_or(&scalar::TABLE))
    })
}

/// The fastest kernel for this pair on this CPU; `None` if the operator is not
/// [defined](crate::is_defined) on the datatype.
#[must_use]
#[inline]
pub fn kernel(datatype: Datatype, operator: Operator) -> Option<&'static Kernel> {
    let (_, table) = chosen();
    table.get(datatype, operator)
}

/// The kernel for this pair in one instruction set; `None` if the operator is not
/// [defined](crate::is_defined) on the datatype, or this CPU does not have the instruction set.
#[must_use]
pub fn kernel_for(isa: Isa, datatype: Datatype, operator: Operator) -> Option<&'static Kernel> {
    isa.table()?.get(datatype, operator)
}

/// Makes [`kernel`] give out the kernels of this instruction set, for the life of the process.
///
/// # Errors
///
/// [`IsaError::Unavailable`] if this CPU does not have it; [`IsaError::AlreadyChosen`] if kernels of
/// another instruction set have been given out before.
pub fn override_isa(asked: Isa) -> Result<(), IsaError> {
    let table = asked.table().ok_or(IsaError::Unavailable { asked })?;
    let &(chosen, _) = CHOSEN.get_or_init(|| (asked, table));
    if chosen == asked { Ok(()) } else { Err(IsaError::AlreadyChosen { asked, chosen }) }
}

/// What [`kernel`] gives out: every defined pair, with the instruction set of its kernel.
pub fn table() -> impl Iterator<Item = (Datatype, Operator, Isa)> {
    let (_, table) = chosen();
    table.iter().map(|kernel| (kernel.datatype, kernel.operator, kernel.isa))
}
