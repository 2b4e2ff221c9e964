//! The start of a trace: whether all ranks can write, what names the job, how far apart clocks are.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};

use shm_core::Call;
use shm_core::job::host_name;
use shm_core::sys::clock::now_ns;
use shm_core::sys::process;

use super::part::{self, Card};
use super::store::Store;
use super::{MARKS, Mark, Trace, WRITE_EVERY_NS, part_of, replace};
use crate::carrier::Carrier;
use crate::context::Inner;
use crate::error::{Error, Result};
use crate::{Element, Operator};

/// Bytes of the word that names a job.
const JOB_BYTES: usize = 8;

/// Starts recording, if that is configured. Collective over all ranks, all of which have it configured.
pub(crate) fn start(context: &Inner) -> Result<Option<Trace>> {
    let Some(path) = &context.config.trace else { return Ok(None) };
    // A program may change its directory. Where there is none, no file can be written either, as is found out below.
    let path = &std::path::absolute(path).unwrap_or_else(|_| path.clone());
    // The world's calls are the program's: messages tell their numbers.
    let world = &mut context.beside_world()?;
    let rank = world.rank();
    let own = try_files(path, rank, world.size());
    if let Some(why) = agree(world, context, own.as_ref().err().map(String::as_str))? {
        let _ = own.map(|()| fs::remove_file(part_of(path, rank)));
        // A rank that leaves with this error may be the end of the others: they have removed theirs by then.
        world.run(Call::BARRIER, context)?;
        return Err(Error::Config(why));
    }
    let mut job = [0; JOB_BYTES];
    if rank == 0 {
        job = process::random_bytes().map_err(|e| Error::Config(format!("HAN_TRACE: no random numbers: {e}")))?;
    }
    bcast(world, context, &mut job, 0)?;
    let nodes = context.network.as_ref().map(|network| &network.placing.nodes);
    let several_clocks = nodes.is_some();
    let card = Card {
        job: format!("{:016x}", u64::from_le_bytes(job)),
        rank,
        size: world.size(),
        node: nodes.map_or(0, |nodes| nodes[rank]),
        host: host_name(),
        clock: clock_identity(),
        marks: if several_clocks { marks(world, context)? } else { Vec::new() },
    };
    if rank == 0 {
        let text = part::head(&card.job, card.size, false);
        // What can be written was found out above.
        let _ = replace(path, &[text.as_bytes(), part::MIDDLE.as_bytes(), part::END.as_bytes()]);
    }
    let trace = Trace {
        path: path.clone(),
        part: part_of(path, rank),
        card,
        several_clocks,
        store: RefCell::new(Store::new(context.config.trace_spans)),
        write_at_ns: Cell::new(now_ns() + WRITE_EVERY_NS),
        trouble: RefCell::default(),
        is_finished: Cell::new(false),
        begun: Cell::new(None),
    };
    trace.write();
    Ok(Some(trace))
}

/// Whether this rank can write its part, and rank 0 the whole.
fn try_files(path: &Path, rank: usize, size: usize) -> std::result::Result<(), String> {
    let try_file = |path: &PathBuf| {
        let empty = [part::head("", size, false).as_str(), part::MIDDLE, part::END].concat();
        replace(path, &[empty.as_bytes()]).map_err(|error| {
            let (path, host) = (path.display(), host_name());
            format!(
                "HAN_TRACE: rank {rank} on {host} cannot write {path}: {error}: name a file in a directory that all \
                 nodes have"
            )
        })
    };
    if rank == 0 {
        if part::is_foreign(path) {
            let path = path.display();
            return Err(format!("HAN_TRACE: {path} is no trace, and stays as it is: name another file"));
        }
        try_file(&path.to_owned())?;
    }
    let part = part_of(path, rank);
    try_file(&part).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

/// The trouble of the first rank that has some.
fn agree(world: &mut Carrier, context: &Inner, trouble: Option<&str>) -> Result<Option<String>> {
    let (rank, size) = (world.rank(), world.size());
    // By rank: the length of what it has to say.
    let mut lengths = vec![0_u32; size];
    lengths[rank] = trouble.map_or(0, |text| u32::try_from(text.len()).unwrap_or(u32::MAX));
    world.run(&Call::allreduce_in_place(&mut lengths, Operator::Max.into()), context)?;
    let Some(first) = lengths.iter().position(|length| *length > 0) else { return Ok(None) };
    let mut text = vec![0; lengths[first] as usize];
    if let (true, Some(own)) = (first == rank, trouble) {
        text.copy_from_slice(own.as_bytes());
    }
    bcast(world, context, &mut text, first)?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// What this rank's clock shows around some barriers.
pub(super) fn marks(world: &mut Carrier, context: &Inner) -> Result<Vec<Mark>> {
    let mark = |_| {
        let entered_ns = now_ns();
        world.run(Call::BARRIER, context)?;
        Ok(Mark { entered_ns, left_ns: now_ns() })
    };
    (0..MARKS).map(mark).collect()
}

pub(super) fn bcast<T: Element>(world: &mut Carrier, context: &Inner, data: &mut [T], root: usize) -> Result<()> {
    world.run(&Call::bcast(data, root), context)
}

/// The same for all processes that see the same `CLOCK_MONOTONIC`.
fn clock_identity() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let time = fs::read_link("/proc/self/ns/time").map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{}/{time}", boot.trim())
}
