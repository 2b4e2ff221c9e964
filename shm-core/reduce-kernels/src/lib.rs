//! Datatypes, reduction operators and their kernels.
//!
//! The lowest room of the house: pure computation on memory that the caller provides. There is no
//! I/O here but for last words, no shared memory and no network. Above it, `shm-core` reduces the contributions of
//! the ranks of one node with these kernels, and `net-fabric` those that come in from the network.
//!
//! * [`Datatype`] and [`Operator`] name what can be reduced and how; [`is_defined`] is MPI's table
//!   of which operator goes with which datatype. [`Element`] ties Rust types to datatypes; a program's own ones can be
//!   records, which its own operators reduce.
//! * [`kernel()`] gives the fastest [`Kernel`] of this CPU for one (datatype, operator) pair: three
//!   functions over raw memory (two operands, three operands, many operands).
//! * [`Op`] is what a collective takes: a built-in operator or a [`UserOperator`].
//! * [`reduce_into`] and [`reduce_many`] are the same over slices, safe.
//! * [`call`] and [`owned`] are a collective call as data, whoever carries it out; [`pieces`] cuts one up.
//! * [`say()`] is how everything above writes to standard error, and [`Strangers`] how it gives its core away.
//!
//! ```
//! use reduce_kernels::{Operator, reduce_into, reduce_many};
//!
//! let mut sum = [1.0f32, 2.0];
//! reduce_into(&mut sum, &[10.0, 20.0], Operator::Sum)?;
//! assert_eq!(sum, [11.0, 22.0]);
//!
//! let mut greatest = [0; 2];
//! reduce_many(&mut greatest, &[&[3, 1], &[4, 1], &[5, 9]], Operator::Max)?;
//! assert_eq!(greatest, [5, 9]);
//! # Ok::<(), reduce_kernels::KernelError>(())
//! ```
//!
//! # What every kernel promises
//!
//! * The bits of a result depend neither on the instruction set nor on the form (two, three, many)
//!   nor on alignment or position, with the two exceptions below.
//! * Integers wrap on overflow. Logical operators take any non-zero value as true and give 0 or 1.
//! * `min(a, b)` is `if b < a { b } else { a }`, `max(a, b)` is `if b > a { b } else { a }`. So a NaN
//!   on the left stays, a NaN on the right is passed over, and of two zeros the left one is kept.
//! * `minloc` and `maxloc` take the right pair if its value is less (greater), or if the values are
//!   equal and its index is less; else they keep the left pair.
//! * A complex product is `(ar*br - ai*bi, ar*bi + ai*br)`, each operation rounded once: no fused
//!   multiply-add, and no recovery of infinities as C's Annex G has it.
//! * Exception 1: *which* NaN a floating-point sum or product gives (its payload and sign) is not
//!   defined, as in IEEE 754; that it is a NaN is.
//! * Exception 2: `f16` and `bf16` sums and products accumulate in `f32` and are rounded once, to
//!   nearest even, when the result is stored. The many form over k operands therefore rounds once
//!   where a chain of two-operand calls rounds k - 1 times.

// They panic where nothing can be written; `say` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod call;
mod collective;
mod convert;
mod datatype;
mod element;
mod kernel;
mod operator;
pub mod owned;
pub mod pieces;
mod say;
mod signature;
mod slices;
mod strangers;
mod unfinished;
mod user;

pub use call::{Call, CallError};
pub use collective::{Collective, Folding, Purpose};
pub use datatype::{Datatype, RecordBytes};
pub use element::{Byte, Complex, DoubleInt, Element, FloatInt, LongInt, Pair, ShortInt, TwoInt};
pub use half::{bf16, f16};
pub use kernel::{Isa, IsaError, Kernel, ManyFn, ThreeFn, TwoFn, kernel, kernel_for, override_isa, table};
pub use operator::{Op, Operator, is_defined};
pub use owned::{Owned, OwnedCall, Ticket};
pub use pieces::{Lender, Pieces, Place};
pub use say::say;
pub use signature::Signature;
pub use slices::{KernelError, reduce_into, reduce_many};
pub use strangers::Strangers;
pub use user::{EndOnPanic, UserFn, UserOperator};
