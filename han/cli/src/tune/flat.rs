//! All ranks on the network: what a simulation by the max-rate model (`nap-allreduce`, equation 3) predicts, with what messages
//! take in this very job.

use std::io::Write;

use charts::as_f64;
use han::select::{Algorithm, Inter, LEAST_CHUNK_BYTES, NetworkQuestion, NodesForm, Tree, choose};
use han::tune::{Bench, Whole, Work};
use han::{Collective, Communicator};
use net_fabric::algorithm::Topology;
use net_fabric::model::closed::Terms;
use net_fabric::model::{self, Case};
use net_fabric::transport::simulated::{Layout, Level, Line, Machine, Model, Noise};

use super::Result;
use super::worker::Worker;
use crate::model::Equation;
use crate::numbers::{bytes_text, time_text};
use crate::output::stdout;
use crate::tables;

/// Where lines through times of messages meet; beyond the last one comes what is asked for.
const KNEES: [usize; 3] = [8, 4 << 10, 64 << 10];
/// The last line goes as far at least.
const LEAST_LONGEST: usize = 256 << 10;
/// Bytes that a pair sends each way, about, and bounds of the messages.
const PAIR_BYTES: usize = 4 << 20;
const PAIR_MESSAGES: std::ops::RangeInclusive<usize> = 4..=100;
/// Everything is measured so often; the best counts.
const TURNS: usize = 3;
/// Several pairs at once are slower than one only if they take so many times as long.
const SLOWER: f64 = 1.05;

/// The job as the max-rate model sees it. Collective.
///
/// A message between nodes is measured by pairs of ranks that exchange it, alone and all at once, which gives what a node can
/// inject. One on a node, through the network as well, is what a chain of all ranks takes beside its steps between nodes.
pub(super) fn machine(worker: &mut Worker<'_>, (nodes, ppn): (usize, usize), bytes: usize) -> Result<Machine> {
    let longest = bytes.max(LEAST_LONGEST);
    let sizes = [KNEES[0], KNEES[1], KNEES[2], longest];
    let rank = worker.world().rank();
    let (node, local) = (rank / ppn, rank % ppn);
    let color = |is_in: bool| is_in.then(|| u32::try_from(local)).transpose();
    let alone = worker.world().split(color(node < 2 && local == 0)?, 0)?;
    let all = worker.world().split(color(node < 2)?, 0)?;
    let (mut network_s, mut local_s) = ([0.0; 4], [0.0; 4]);
    for (place, &bytes) in sizes.iter().enumerate() {
        network_s[place] = message_s(worker, alone.as_ref(), bytes)?;
        let chain_s = chain_s(worker, Collective::Bcast, bytes)?;
        local_s[place] = (chain_s - as_f64(nodes - 1) * network_s[place]) / as_f64(nodes * (ppn - 1));
    }
    let together_s = message_s(worker, all.as_ref(), longest)?;
    let injection = as_f64(ppn * longest) / together_s;
    let reduced_s = chain_s(worker, Collective::Reduce, longest)? - chain_s(worker, Collective::Bcast, longest)?;
    let reduce_byte_s = (reduced_s / as_f64((nodes * ppn - 1) * longest)).max(0.0);
    let level = |seconds: [f64; 4]| {
        let line = |place: usize| {
            let byte_s = (seconds[place + 1] - seconds[place]) / as_f64(sizes[place + 1] - sizes[place]);
            let byte_s = byte_s.max(1e-15);
            Line { latency_s: (seconds[place] - byte_s * as_f64(sizes[place])).max(1e-9), byte_s }
        };
        Level { short: line(0), eager: line(1), rendezvous: line(2), loggp: None }
    };
    Ok(Machine {
        name: "this job".to_owned(),
        model: Model::MaxRate,
        sockets_per_node: 1,
        short_below_bytes: KNEES[1],
        eager_below_bytes: KNEES[2],
        injection_bytes_per_s: (together_s > SLOWER * network_s[3]).then_some(injection),
        reduce_byte_s,
        // Nobody measures it: about what a sum reads and writes.
        copy_byte_s: reduce_byte_s,
        socket: level(local_s),
        node: level(local_s),
        network: level(network_s),
    })
}

/// Seconds of a message of one of `pair` to the other.
fn message_s(worker: &mut Worker<'_>, pair: Option<&Communicator>, bytes: usize) -> Result<f64> {
    let messages = (PAIR_BYTES / bytes).clamp(*PAIR_MESSAGES.start(), *PAIR_MESSAGES.end());
    let mut vector = vec![0_u8; bytes];
    let mut best_s = f64::MAX;
    for _ in 0..TURNS {
        worker.world().barrier()?;
        let began = std::time::Instant::now();
        for message in 0..pair.map_or(0, |_| 2 * messages) {
            pair.map_or(Ok(()), |pair| pair.bcast(&mut vector, message % 2))?;
        }
        let each_s = began.elapsed().as_secs_f64() / as_f64(2 * messages);
        best_s = best_s.min(worker.greatest(vec![pair.map_or(0.0, |_| each_s)])?[0]);
    }
    Ok(best_s)
}

/// Seconds of a chain of all ranks, the vector in one piece.
fn chain_s(worker: &mut Worker<'_>, collective: Collective, bytes: usize) -> Result<f64> {
    let settings = Inter {
        form: Some(NodesForm::Flat),
        algorithm: Some(Algorithm::Tree(Tree::Chain)),
        chunk_bytes: Some(bytes).filter(|&bytes| bytes >= LEAST_CHUNK_BYTES),
        ..Inter::default()
    };
    let mut best_s = f64::MAX;
    for turn in 0..TURNS {
        let work = Work { by: "machine", turn, collective, bytes, chunks: None, settings };
        best_s = best_s.min(worker.measure(&work)?.us[0][0] * 1e-6);
    }
    Ok(best_s)
}

/// What was measured beside what is predicted.
pub(super) struct Estimated<'a> {
    pub(super) whole: &'a Whole,
    /// Microseconds by the simulation.
    pub(super) us: f64,
    equation: Option<Equation>,
}

/// By what a job chooses what its settings leave open.
pub(super) struct Job {
    /// Nodes, and ranks of each, numbered node by node.
    pub(super) shape: (usize, usize),
    pub(super) shares_cores: bool,
    pub(super) wire_mbit_s: Option<u64>,
    /// What is set of it, beside what is compared.
    pub(super) set: Inter,
}

/// Estimates `wholes`.
pub(super) fn estimates<'a>(
    machine: &Machine,
    job: &Job,
    collective: Collective,
    bytes: usize,
    wholes: &'a [Whole],
) -> Result<Vec<Estimated<'a>>> {
    let (nodes, ppn) = job.shape;
    let layout = Layout::new(nodes, ppn)?;
    let places: Vec<usize> = (0..layout.ranks()).map(|rank| rank / ppn).collect();
    let topology = Topology::new(&[&places]);
    let question = NetworkQuestion {
        collective,
        ranks: layout.ranks(),
        bytes,
        element_bytes: size_of::<f32>(),
        commutative: true,
        root: 0,
        shares_cores: job.shares_cores,
        wire_mbit_s: job.wire_mbit_s,
        topology: Some(&topology),
    };
    let estimate = |whole: &'a Whole| {
        let plan = choose(&question, &job.set.with(&whole.family)).plan;
        let (algorithm, chunk_bytes, policy) = (plan.algorithm, plan.chunk_bytes, plan.policy);
        let noise = Noise::None;
        let case = Case { layout, collective, algorithm, root: 0, bytes, chunk_bytes, policy, noise };
        let us = model::simulate(machine, &case)?.seconds() * 1e6;
        let equation = Terms::of(machine, layout, bytes).filter(|_| collective == Collective::Allreduce);
        Ok(Estimated { whole, us, equation: equation.and_then(|terms| Equation::of(&case, &terms)) })
    };
    wholes.iter().map(estimate).collect()
}

/// Prints `estimates` beside measurements.
pub(super) fn show(machine: &Machine, estimates: &[Estimated<'_>]) -> Result<()> {
    let mut table = tables::plain(["all ranks on the network", "simulated us", "equation us", "measured us", "error"]);
    let mut errors = Vec::new();
    for Estimated { whole, us, equation } in estimates {
        errors.push((us / whole.us - 1.0).abs());
        table.add_row([
            whole.family.to_text(),
            time_text(*us),
            equation.as_ref().map_or("-".to_owned(), |equation| time_text(equation.seconds * 1e6)),
            time_text(whole.us),
            format!("{:+.1} %", (us / whole.us - 1.0) * 100.0),
        ]);
    }
    errors.sort_by(f64::total_cmp);
    let message = |line: &Line, bytes: usize| time_text((line.latency_s + line.byte_s * as_f64(bytes)) * 1e6);
    writeln!(
        stdout(),
        "\n{table}\nby messages as this job has them: 8 bytes {} us between nodes and {} on a node, {} bytes {} and {}{}",
        message(&machine.network.short, KNEES[0]),
        message(&machine.socket.short, KNEES[0]),
        bytes_text(KNEES[2]),
        message(&machine.network.eager, KNEES[2]),
        message(&machine.socket.eager, KNEES[2]),
        machine
            .injection_bytes_per_s
            .map_or(String::new(), |rate| format!("; a node's ranks send {:.2} GB/s together", rate * 1e-9)),
    )?;
    if let Some(median) = errors.get(errors.len() / 2) {
        writeln!(stdout(), "{} algorithms; error of the estimate: median {:.1} %", errors.len(), median * 100.0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_simulated_is_what_the_job_does() {
        let line = Line { latency_s: 1e-5, byte_s: 1e-9 };
        let level = Level { short: line, eager: line, rendezvous: line, loggp: None };
        let machine = Machine {
            name: String::new(),
            model: Model::MaxRate,
            sockets_per_node: 1,
            short_below_bytes: KNEES[1],
            eager_below_bytes: KNEES[2],
            injection_bytes_per_s: None,
            reduce_byte_s: 0.0,
            copy_byte_s: 0.0,
            socket: level,
            node: level,
            network: level,
        };
        let inter = |pairs: &[(&str, &str)]| {
            let mut inter = Inter::default();
            pairs.iter().for_each(|(key, value)| assert_eq!(inter.set(key, value), Ok(())));
            inter
        };
        let wholes = [Whole { family: inter(&[("nodes_form", "flat"), ("inter_algorithm", "chain")]), us: 1.0 }];
        let us = |wire_mbit_s, set| {
            let job = Job { shape: (2, 2), shares_cores: false, wire_mbit_s, set };
            estimates(&machine, &job, Collective::Bcast, 256 << 10, &wholes).map_or(f64::NAN, |found| found[0].us)
        };
        // On a slow wire pieces are shorter.
        let by_wire = us(Some(1000), Inter::default());
        assert!((by_wire - us(None, Inter::default())).abs() > 1.0);
        for set in [("inter_chunk_bytes", "16384"), ("wire_mbit_s", "1000")] {
            assert!((by_wire - us(None, inter(&[set]))).abs() < 1e-3, "{set:?}");
        }
    }
}
