//! Measured choices: the file that holds them, the model that predicts collectives from their tasks, and the searches that
//! find the best configuration (dissertation, sections 5.3 and 6.2).
//!
//! Nothing here measures: searches ask a [`Bench`], which `han tune` implements on a job and the tests on formulas.
//! `docs/tuning.md` says how well the searches do.

pub mod compare;
mod file;
mod heuristics;
mod journal;
mod lookup;
pub mod model;
mod search;
mod space;
mod text;

pub(crate) use file::under;
pub use file::{Measured, Point, Source, Tuning};
pub use journal::{Entry, Journal};
pub use lookup::{Found, Wanted};
pub use search::{Bench, Best, Check, Method, Outcome, Validation, Whole, Work, neighbours, search, validate, works};
pub use space::{Candidate, Case, Space};
