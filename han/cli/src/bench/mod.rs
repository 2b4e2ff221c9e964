//! `han bench`: how long a collective takes, checked as it is timed.
//!
//! Started by hand it starts itself again as a job of `han run`; under any launcher it is one rank.
//! [`args`] says what, [`series`] measures, on [`vectors`] of any datatype, [`pattern`] knows what must come out,
//! [`report`] prints. What the machine itself charges is the business of [`crate::limits`].

mod args;
mod noise;
mod overlap;
mod pattern;
mod report;
mod series;
mod vectors;

use std::collections::TryReserveError;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use han::{Communicator, Config, Context, bootstrap};
use reduce_kernels::say;
use shm_core::job::MAX_RANKS;
use shm_core::sys::affinity::allowed_cores;
use shm_core::topo::Topology;

use crate::Result;
use crate::limits;
use crate::output::{ReaderLeft, is_reader_left};
pub(crate) use args::{Args, Memory, check_root, parse_datatype, parse_setting};
use args::{Style, check, collectives, counts, idle};

/// The configuration's own variable; `--set` adds to it.
pub(crate) const SET_VARIABLE: &str = "HAN_SET";

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if let Some(path) = &args.limits_peer {
        limits::serve(path)?;
    } else if let Some(&[first, second]) = args.one_way.as_deref() {
        limits::print_one_way(first, second)?;
    } else if args.limits {
        limits::main(args.json)?;
    } else {
        check(args)?;
        if args.worker {
            return work(args);
        }
        if let Some(spec) = args.noise {
            noise::compare(args, spec)?;
            return Ok(ExitCode::SUCCESS);
        }
        return Err(start(args));
    }
    Ok(ExitCode::SUCCESS)
}

/// How many ranks are meant where nobody says: one a usable core of one node, as far as it can have them, two on each of
/// several.
pub(crate) fn default_ranks(nodes: Option<u32>) -> usize {
    match nodes {
        Some(nodes @ 2..) => 2 * nodes as usize,
        _ => allowed_cores().map_or(1, |allowed| one_a_core(Topology::of_this_machine().ok(), &allowed)),
    }
}

/// The same on a `machine`, if it is known, of which these processors may be used.
fn one_a_core(machine: Option<Topology>, allowed: &[usize]) -> usize {
    machine.map_or(allowed.len(), |machine| machine.restricted_to(allowed).cores()).clamp(1, MAX_RANKS)
}

/// An error if so many ranks do not fit on so many nodes.
pub(crate) fn fit(ranks: usize, nodes: u32) -> Result<()> {
    if ranks.div_ceil(nodes as usize) > MAX_RANKS {
        return Err(format!("-n {ranks}: one node has at most {MAX_RANKS} ranks; --nodes spreads them").into());
    }
    Ok(())
}

/// True if this process is a rank of a launcher's job. In a shell that is the only rank of one (`srun --pty bash`), who wants
/// several ranks means a job of their own.
pub(crate) fn is_rank(several: bool) -> bool {
    bootstrap::is_rank() && !(several && bootstrap::is_only_rank())
}

/// An error for a prefix in a job that something else has started.
pub(crate) fn no_prefix(node_exec: Option<&str>) -> Result<()> {
    node_exec.map_or(Ok(()), |prefix| {
        Err(format!("--node-exec {prefix}: the launcher has started the ranks: give the prefix to it").into())
    })
}

/// A buffer of `count` elements, where there may be no memory for it.
pub(crate) fn filled(value: f32, count: usize) -> Result<Vec<f32>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(count).map_err(|error| no_memory::<f32>(count, &error))?;
    buffer.resize(count, value);
    Ok(buffer)
}

fn no_memory<T>(count: usize, error: &TryReserveError) -> String {
    format!("no memory for buffers of {} bytes: {error}", count.saturating_mul(size_of::<T>()))
}

/// Becomes the job (or, under a launcher, the rank) that measures; returns only with an error.
fn start(args: &Args) -> Box<dyn std::error::Error> {
    let executable = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => return error.into(),
    };
    let mut command = Command::new(&executable);
    if is_rank(args.ranks.max(args.nodes).is_some_and(|wanted| wanted > 1)) {
        if let Err(error) = no_prefix(args.node_exec.as_deref()) {
            return error;
        }
    } else {
        let ranks = args.ranks.map_or_else(|| default_ranks(args.nodes), |ranks| ranks as usize);
        // Here it is said once, in a job by every rank.
        let checked = fit(ranks, args.nodes.unwrap_or(1)).and_then(|()| configured(&args.set).map(drop));
        if let Err(error) = checked {
            return error;
        }
        command.args(["run", "-n", &ranks.to_string()]);
        if let Some(nodes) = args.nodes {
            command.args(["--nodes", &nodes.to_string()]);
        }
        if let Some(prefix) = &args.node_exec {
            command.args(["--node-exec", prefix]);
        }
        command.arg("--").arg(executable);
    }
    command.args(own_words(["--worker"])).exec().into()
}

/// The words of this process's command line with `hidden` options behind the subcommand's name: at the end they could be
/// behind a `--` of the user's.
pub(crate) fn own_words<'a>(hidden: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = OsString> {
    let mut own = std::env::args_os().skip(1);
    let subcommand = own.next();
    subcommand.into_iter().chain(hidden.into_iter().map(OsString::from)).chain(own)
}

/// The configuration of this process, with the settings of its command line.
pub(crate) fn configured(settings: &[String]) -> Result<Config> {
    let mut config = Config::from_environment()?;
    settings.iter().try_for_each(|pair| config.set_all(pair))?;
    Ok(config)
}

/// Joins the job with that configuration. Ranks have the settings of the command line from their own, as a prefix may drop
/// variables.
pub(crate) fn join(settings: &[String]) -> Result<Context> {
    let config = configured(settings)?;
    Ok(Context::with(bootstrap::connect(&config)?, config)?)
}

/// `HAN_SET` of this process and the settings of its command line, as one text.
pub(crate) fn joined(settings: &[String]) -> String {
    let inherited = std::env::var(SET_VARIABLE).ok().filter(|text| !text.is_empty());
    Config::joined(inherited.iter().chain(settings).map(String::as_str))
}

/// One rank of the benchmark.
fn work(args: &Args) -> Result<ExitCode> {
    let context = join(args.settings.as_ref().map_or(&args.set[..], std::slice::from_ref))?;
    let ranks = context.world().size();
    if let Some(wanted) = args.ranks.filter(|&wanted| wanted as usize != ranks) {
        let name = bootstrap::told_by().unwrap_or_default();
        let why = match ranks {
            // In a shell under a launcher that does not say so by its variables.
            1 => {
                format!("-n {wanted}, but the launcher started one rank: for a job of its own, env -u {name} han bench")
            }
            _ => format!("-n {wanted}, but the launcher started {ranks} ranks"),
        };
        return Err(why.into());
    }
    let nodes = context.node_count();
    if let Some(wanted) = args.nodes.filter(|&wanted| wanted as usize != nodes) {
        return Err(format!("--nodes {wanted}, but the launcher spread the ranks over {nodes}").into());
    }
    check_root(args.root, ranks)?;
    if args.overlap {
        let measured = measure_overlap(args, &context);
        context.finalize()?;
        return measured.map(|()| ExitCode::SUCCESS);
    }
    let measured = measure(args, &context);
    // Where the reader has left, all ranks have stopped.
    if measured.as_ref().map_or_else(|error| is_reader_left(&**error), |_| true) {
        context.finalize()?;
    }
    Ok(if measured? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures, prints and draws what overlaps of every collective asked for that has data.
fn measure_overlap(args: &Args, context: &Context) -> Result<()> {
    let (mut all, mut printed) = (Vec::new(), Ok(()));
    let is_first = context.world().rank() == 0;
    for collective in collectives(&args.collectives).into_iter().filter(|collective| collective.has_data()) {
        let plan = overlap::Plan {
            collective,
            repeats: args.repeats,
            repeat_time: Duration::from_millis(args.ms),
            bytes: counts(collective, args, size_of::<f32>()).iter().map(|count| count * size_of::<f32>()).collect(),
        };
        let rows = overlap::run(context, &plan)?;
        if is_first && printed.is_ok() {
            printed = overlap::print(&rows, args.json);
        }
        all.extend(rows);
        // A picture gets all that was asked for, whoever reads the tables.
        if args.svg.is_none() {
            stop_together(context.world(), printed)?;
            printed = Ok(());
        }
    }
    args.svg.as_ref().filter(|_| is_first).map_or(Ok(()), |path| overlap::draw(path, &all))?;
    printed
}

/// Measures and prints every collective asked for; gives whether all results were right.
fn measure(args: &Args, context: &Context) -> Result<bool> {
    let communicator = context.world();
    if let Some(spec) = args.noise {
        return noise::rank(args, spec, communicator);
    }
    if communicator.rank() == 0 {
        idle(args).for_each(|note| say(&format!("han bench: {note}")));
    }
    let cores = series::common_cores(communicator)?;
    let mut verified = true;
    for collective in collectives(&args.collectives) {
        let plan = series::Plan {
            collective,
            datatype: args.dtype,
            operator: args.op,
            root: args.root,
            // A buffer that is rewritten between iterations needs them to be timed one by one.
            style: args.style.unwrap_or(if args.cold { Style::Osu } else { Style::Loop }),
            cold: args.cold,
            buffers: args.buffers as usize,
            memory: args.alloc,
            repeats: args.repeats,
            repeat_time: Duration::from_millis(args.ms),
            counts: counts(collective, args, args.dtype.size()),
        };
        let before = series::probe(communicator, &cores)?;
        let points = series::run(communicator, &plan)?;
        let after = series::probe(communicator, &cores)?;
        let mut printed = Ok(());
        verified &= points.iter().all(|point| point.verified);
        if communicator.rank() == 0 {
            let report = report::Report {
                plan: &plan,
                ranks: communicator.size(),
                nodes: context.node_count(),
                cores: &cores,
                one_way_ns: (before, after),
                points: &points,
            };
            printed = if args.json { report.print_json() } else { report.print_table() };
        }
        stop_together(communicator, printed)?;
    }
    Ok(verified)
}

/// Ends the measurement on all ranks if rank 0 could not print because its reader has left: no rank shall find
/// another one dead.
fn stop_together(communicator: &Communicator, printed: Result<()>) -> Result<()> {
    let has_left = matches!(&printed, Err(error) if is_reader_left(&**error));
    if !has_left {
        printed?;
    }
    let mut left = [u8::from(has_left)];
    communicator.bcast(&mut left, 0)?;
    if left[0] == 0 { Ok(()) } else { Err(ReaderLeft.into()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_rank_a_usable_core_as_far_as_a_node_can_have_them() {
        let count = |description, allowed: &[usize]| one_a_core(Topology::synthetic(description).ok(), allowed);
        assert_eq!(count("core:4 pu:2", &[0, 1, 2, 3, 4, 5, 6, 7]), 4);
        assert_eq!(count("core:4 pu:2", &[0, 1, 5]), 2);
        let all: Vec<usize> = (0..384).collect();
        assert_eq!(count("pack:2 core:192", &all), MAX_RANKS);
        assert_eq!((one_a_core(None, &[3, 4]), one_a_core(None, &all)), (2, MAX_RANKS));
    }
}
