//! The launcher's side of PMI-1: [`server`] decides, [`link`] reads and writes.

mod link;
mod server;

pub(super) use link::{Links, Report};
pub(super) use server::Phase;
