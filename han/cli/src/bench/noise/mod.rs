//! `han bench --noise`: how delays of ranks spread under each policy, with real processes.
//!
//! Each policy has jobs of its own, as the policy is a setting of the whole job; they take turns, so that a machine
//! that changes meets all of them. In a job, operations with delays and without alternate. A delayed rank sleeps in
//! the handler of a signal, wherever it was: it begins nothing and notices nothing, and its core is free for others.

mod disturber;
mod report;

use std::io::Write;
use std::process::{Command, Stdio};

use han::select::{POLICIES, Policy};
use han::{Communicator, Config, Operator};
use net_fabric::transport::simulated::Noise;
use serde::{Deserialize, Serialize};

use super::{Args, Result, Style, collectives, is_rank, joined, own_words, series};
use crate::model::noise::Spec;
use crate::numbers::median;
use crate::output::stdout;
use crate::run::KeysHeld;
use disturber::Disturber;

/// Jobs of each policy.
const TURNS: u32 = 3;
/// Operations that tell how long one takes, before any is delayed.
const QUIET: usize = 5;
/// The tree of the dissertation's section 3.4, unless another algorithm is set.
const TREE: &str = "inter_algorithm=binary";

/// What one job has measured: seconds by operation, then by rank.
#[derive(Serialize, Deserialize)]
struct Sample {
    choice: String,
    verified: bool,
    quiet: Vec<Vec<f64>>,
    noisy: Vec<Vec<f64>>,
}

/// One policy's operations of all turns.
struct Measured {
    policy: Policy,
    choice: String,
    quiet: Vec<Vec<f64>>,
    noisy: Vec<Vec<f64>>,
}

/// Finds what cannot be measured.
pub(super) fn check(args: &Args, spec: Spec) -> Result<()> {
    let chosen = collectives(&args.collectives);
    if chosen.len() != 1 || !chosen[0].has_data() {
        return Err("--noise compares policies on one collective: bcast, reduce or allreduce".into());
    }
    let Some(ranks) = args.ranks else {
        return Err("--noise compares policies of the network: give the number of ranks by -n".into());
    };
    Ok(spec.noise(0.0, 0).check(ranks as usize)?)
}

/// Starts the jobs, and shows what they have measured.
pub(super) fn compare(args: &Args, spec: Spec) -> Result<()> {
    if is_rank(true) {
        let name = han::bootstrap::told_by().unwrap_or_default();
        return Err(
            format!("--noise starts jobs of its own: call it without a launcher: env -u {name} han bench").into()
        );
    }
    let mut all =
        POLICIES.map(|(_, policy)| Measured { policy, choice: String::new(), quiet: Vec::new(), noisy: Vec::new() });
    for turn in 0..TURNS {
        for (measured, (name, _)) in all.iter_mut().zip(POLICIES) {
            let Sample { choice, verified, quiet, noisy } = job(args, name, turn)?;
            if !verified {
                return Err(format!("inter_policy={name}: a result was wrong").into());
            }
            measured.choice = choice;
            measured.quiet.extend(quiet);
            measured.noisy.extend(noisy);
        }
    }
    report::show(args, spec, &all)
}

/// One job under one policy.
fn job(args: &Args, policy: &str, turn: u32) -> Result<Sample> {
    let executable = std::env::current_exe()?;
    let ranks = args.ranks.unwrap_or(1);
    let mut command = Command::new(&executable);
    // One rank a node, so that all of them go through the network, unless something else is asked for.
    let nodes = args.nodes.unwrap_or(ranks).to_string();
    let parent = std::process::id().to_string();
    command.args(["run", "--with-parent", &parent, "-n", &ranks.to_string(), "--nodes", &nodes]);
    if let Some(prefix) = &args.node_exec {
        command.args(["--node-exec", prefix]);
    }
    let settings = Config::joined([TREE, &joined(&args.set), &format!("inter_policy={policy}")]);
    let hidden = ["--worker", "--turn", &turn.to_string(), "--settings", &settings];
    command.arg("--").arg(executable).args(own_words(hidden));
    let keys = KeysHeld::while_running(&mut command)?;
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    drop(keys);
    if !output.status.success() {
        return Err(format!("the job under inter_policy={policy} has failed: {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().last().ok_or("the job has said nothing")?;
    Ok(serde_json::from_str(line)?)
}

/// Elements of each operation: as many as fit into `--max`, but no operation is of none.
fn count(args: &Args) -> usize {
    (args.max() / args.dtype.size()).max(1)
}

/// One rank of such a job.
pub(super) fn rank(args: &Args, spec: Spec, communicator: &Communicator) -> Result<bool> {
    let collective = collectives(&args.collectives)[0];
    let plan = series::Plan {
        collective,
        datatype: args.dtype,
        operator: args.op,
        root: args.root,
        style: Style::Osu,
        cold: false,
        buffers: 1,
        memory: args.alloc,
        repeats: args.repeats,
        repeat_time: std::time::Duration::ZERO,
        counts: vec![count(args)],
    };
    let own = communicator.rank();
    let (seconds, _, _) = series::singly(communicator, &plan, QUIET, &mut Disturber::new(own, |_| Noise::None)?)?;
    let mut slowest = seconds;
    communicator.allreduce_in_place(&mut slowest, Operator::Max)?;
    let quiet_s = median(&slowest);
    let pairs = args.repeats as usize;
    let (first, spec_of) = (u64::from(args.turn) * pairs as u64, spec);
    let noise = move |number: usize| match number % 2 {
        0 => Noise::None,
        _ => spec_of.noise(quiet_s, first + number as u64 / 2),
    };
    let mut disturber = Disturber::new(own, noise)?;
    let (seconds, choice, verified) = series::singly(communicator, &plan, 2 * pairs, &mut disturber)?;
    let by_rank = gathered(communicator, &seconds)?;
    let of = |odd: usize| by_rank.iter().skip(odd).step_by(2).cloned().collect();
    let sample = Sample { choice, verified, quiet: of(0), noisy: of(1) };
    if own == 0 {
        writeln!(stdout(), "{}", serde_json::to_string(&sample)?)?;
    }
    Ok(verified)
}

/// All ranks' seconds, by operation and rank.
fn gathered(communicator: &Communicator, seconds: &[f64]) -> Result<Vec<Vec<f64>>> {
    let (rank, size) = (communicator.rank(), communicator.size());
    let mut all = vec![0.0; seconds.len() * size];
    for (operation, seconds) in seconds.iter().enumerate() {
        all[operation * size + rank] = *seconds;
    }
    communicator.allreduce_in_place(&mut all, Operator::Sum)?;
    Ok(all.chunks(size).map(<[f64]>::to_vec).collect())
}
