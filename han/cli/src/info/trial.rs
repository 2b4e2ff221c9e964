//! Each way to share memory between processes, tried once, with the system's own words when it fails.

use std::fs;
use std::path::Path;

use comfy_table::Table;
use serde::Serialize;
use shm_core::sys::map::{DEV_SHM, SharedMap};

use super::{Result, plain_table};
use crate::limits;

/// One way and its verdict.
#[derive(Serialize)]
pub(super) struct Trial {
    method: &'static str,
    works: bool,
    verdict: String,
    used_for: &'static str,
}

/// Tries every way.
pub(super) fn all() -> Vec<Trial> {
    vec![
        Trial::of("memfd", memfd(), "segments"),
        Trial::of("dev_shm", dev_shm(), "segments where memfd fails"),
        Trial::of("process_vm_readv", limits::try_process_vm_readv(), "nothing in this version"),
    ]
}

impl Trial {
    fn of(method: &'static str, outcome: Result<()>, used_for: &'static str) -> Self {
        let verdict = outcome.as_ref().map_or_else(ToString::to_string, |()| "works".to_owned());
        Self { method, works: outcome.is_ok(), verdict, used_for }
    }
}

pub(super) fn table(trials: &[Trial]) -> Table {
    let mut table = plain_table(&["method", "verdict", "used for"]);
    for trial in trials {
        table.add_row([trial.method, &trial.verdict, trial.used_for]);
    }
    table
}

/// Makes an anonymous object and reaches it the way that another process would.
fn memfd() -> Result<()> {
    let map = SharedMap::anonymous("han-info", 4096)?;
    SharedMap::open(&map.path_for_peers(), 4096)?;
    Ok(())
}

/// Makes a named object, reaches it by its name, removes the name.
fn dev_shm() -> Result<()> {
    let path = Path::new(DEV_SHM).join(format!("han-info-{}", std::process::id()));
    let _map = SharedMap::named(&path, 4096)?;
    let reached = SharedMap::open(&path, 4096);
    fs::remove_file(&path)?;
    reached?;
    Ok(())
}
