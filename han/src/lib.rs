//! Collective communication for native HPC codes on CPUs.
//!
//! ```
//! let context = han::Context::init()?; // rank and size come from the launcher, or this is the only rank
//! let world = context.world();
//! let mut sum = [world.rank() as f64];
//! world.allreduce_in_place(&mut sum, han::Operator::Sum)?;
//! assert_eq!(sum[0], (0..world.size()).sum::<usize>() as f64);
//! context.finalize()?;
//! # Ok::<(), han::Error>(())
//! ```
//!
//! A [`Context`] is this process's place in the job; a [`Communicator`] is a group of ranks that does
//! collectives together. Both belong to one thread. Every call returns the same error on every rank
//! when a rank dies or calls something else; [`Error::kind`] tells programs which of these.
//!
//! A type of the program's own can be an [`Element`], which the program's own operators reduce:
//!
//! ```
//! use han::{Context, Datatype, Element, UserOperator};
//!
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! #[repr(C)]
//! struct Span {
//!     least: f64,
//!     greatest: f64,
//! }
//!
//! // SAFETY: `repr(C)` without padding, and valid for every bit pattern.
//! unsafe impl Element for Span {
//!     const DATATYPE: Datatype = Datatype::record_of::<Self>();
//! }
//!
//! let cover = UserOperator::elementwise(true, |a: Span, b: Span| Span {
//!     least: a.least.min(b.least),
//!     greatest: a.greatest.max(b.greatest),
//! });
//! let context = Context::init()?;
//! let world = context.world();
//! let mine = world.rank() as f64;
//! let mut spans = [Span { least: mine, greatest: mine + 1.0 }];
//! world.allreduce_in_place(&mut spans, cover)?;
//! assert_eq!(spans, [Span { least: 0.0, greatest: world.size() as f64 }]);
//! context.finalize()?;
//! # Ok::<(), han::Error>(())
//! ```

// They panic where nothing can be written; `say` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod bootstrap;
mod carrier;
mod communicator;
mod config;
mod context;
mod error;
mod forked;
mod group;
mod misspelled;
mod network;
mod nodes;
mod parts;
mod placing;
mod request;
pub mod select;

// What the binary `han` is made of, which may change with any version.
#[doc(hidden)]
pub mod files;
#[doc(hidden)]
pub mod foreseen;
#[doc(hidden)]
pub mod machine;
#[doc(hidden)]
pub mod task;
#[doc(hidden)]
pub mod trace;
#[doc(hidden)]
pub mod tune;

pub use communicator::Communicator;
pub use config::{Config, Entry, LogLevel};
pub use context::Context;
pub use error::{Error, ErrorKind, Result};
pub use net_fabric::Error as NetworkError;
pub use net_fabric::transport::ofi::Interface;
pub use nodes::TaskEnd;
pub use reduce_kernels::{
    Byte, CallError, Complex, Datatype, DoubleInt, Element, FloatInt, LongInt, Op, Operator, Pair, RecordBytes,
    ShortInt, TwoInt, UserOperator,
};
pub use request::{RawRequest, Request, wait_all};
pub use shm_core::segment::Backing;
pub use shm_core::{
    Call, Collective, Error as NodeError, Exchange, ExchangeError, Form, Job, Method, MethodSet, Methods, Settings,
    SharedVec, Single,
};
