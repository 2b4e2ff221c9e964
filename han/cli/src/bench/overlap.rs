//! `han bench --overlap`: how much of the work on one level the other one hides (dissertation, equation 5.3).
//!
//! Each leader does a collective across nodes, one with the ranks of its node, and both at once. What overlaps is told for every
//! leader, as figures 5.10 and 5.11 do, for the modules and algorithms that are set. An allreduce has as many leaders of a node
//! as the setting `leaders` says: all do this at once, and the ranks of a node take part in what each leads.

mod picture;

use std::io::Write;
use std::time::{Duration, Instant};

use han::task::Layout;
use han::tune::model::overlap;
use han::{Call, Collective, Communicator, Context, Operator, Request};
use serde::Serialize;

use super::{Result, filled};
use crate::numbers::{bytes_text, median, time_text};
use crate::output::stdout;
use crate::tables;
pub(super) use picture::draw;

/// Fewest iterations in a repeat.
const LEAST_ITERATIONS: u32 = 3;
/// Most iterations in a repeat.
const MOST_ITERATIONS: u32 = 10_000;

/// What to measure, and how.
pub(super) struct Plan {
    pub(super) collective: Collective,
    pub(super) repeats: u32,
    pub(super) repeat_time: Duration,
    pub(super) bytes: Vec<usize>,
}

/// What of the levels is at work.
#[derive(Clone, Copy)]
struct Levels {
    inter: bool,
    intra: bool,
}

const INTER: Levels = Levels { inter: true, intra: false };
const INTRA: Levels = Levels { inter: false, intra: true };
const BOTH: Levels = Levels { inter: true, intra: true };

/// One leader's result.
#[derive(Serialize)]
pub(super) struct Row {
    coll: &'static str,
    bytes: usize,
    ranks: usize,
    nodes: usize,
    node: usize,
    leader: usize,
    rail: usize,
    module: &'static str,
    inter: String,
    intra: String,
    inter_us: f64,
    intra_us: f64,
    both_us: f64,
    overlap: f64,
}

/// The groups of this rank, and its buffers.
struct Stage<'a> {
    world: &'a Communicator,
    node: Communicator,
    /// By rail: the rank in `node` that leads.
    leads: Vec<usize>,
    /// On leaders alone: those of the same rail.
    leaders: Option<(usize, Communicator)>,
    collective: Collective,
    /// For the network, and for two operations in memory by rail.
    buffers: Vec<Vec<f32>>,
}

/// Measures all sizes; a row for each leader.
pub(super) fn run(context: &Context, plan: &Plan) -> Result<Vec<Row>> {
    let world = context.world();
    let layout = Layout::new(&context.nodes());
    if layout.nodes() < 2 {
        return Err("--overlap needs several nodes: give --nodes K".into());
    }
    let own = layout.node_of(world.rank());
    let local = layout.local_of(world.rank());
    let leads: Vec<usize> = (0..rails(context, plan, &layout)).map(|rail| layout.leader(own, rail)).collect();
    let rail = leads.iter().position(|&leader| leader == local);
    let node = world.split(u32::try_from(own).ok(), 0)?.ok_or("a rank without a node")?;
    let leaders = world.split(rail.and_then(|rail| u32::try_from(rail).ok()), 0)?;
    let leaders = rail.zip(leaders);
    let mut stage = Stage { world, node, leads, leaders, collective: plan.collective, buffers: Vec::new() };
    let mut rows = Vec::new();
    for &bytes in &plan.bytes {
        let times = stage.measure(bytes, plan, own, layout.nodes())?;
        let (module, inter, intra) = stage.choices(bytes);
        for (place, of_leader) in times.chunks_exact(3).enumerate() {
            let &[inter_us, intra_us, both_us] = of_leader else { continue };
            let (node, rail) = (place / stage.leads.len(), place % stage.leads.len());
            rows.push(Row {
                coll: plan.collective.name(),
                bytes,
                ranks: world.size(),
                nodes: layout.nodes(),
                node,
                leader: layout.members(node)[layout.leader(node, rail)],
                rail,
                module,
                inter: inter.clone(),
                intra: intra.clone(),
                inter_us,
                intra_us,
                both_us,
                overlap: overlap(inter_us, intra_us, both_us).unwrap_or(0.0),
            });
        }
    }
    Ok(rows)
}

/// Leaders of a node: one, or what is set, but no rank leads twice.
fn rails(context: &Context, plan: &Plan, layout: &Layout) -> usize {
    let least = (0..layout.nodes()).map(|node| layout.members(node).len()).min().unwrap_or(1);
    let set = context.config().inter.leaders.filter(|_| plan.collective != Collective::Barrier);
    set.unwrap_or(1).min(least)
}

/// One JSON object a line, or a table.
pub(super) fn print(rows: &[Row], json: bool) -> Result<()> {
    if json {
        return rows.iter().try_for_each(|row| Ok(writeln!(stdout(), "{}", serde_json::to_string(row)?)?));
    }
    let places = ["bytes", "node", "leader", "rail", "module", "across nodes", "on a node"];
    let times = ["inter us", "intra us", "both us", "overlap"];
    let mut table = tables::plain(places.into_iter().chain(times));
    for row in rows {
        table.add_row([
            bytes_text(row.bytes),
            row.node.to_string(),
            row.leader.to_string(),
            row.rail.to_string(),
            row.module.to_owned(),
            row.inter.clone(),
            row.intra.clone(),
            time_text(row.inter_us),
            time_text(row.intra_us),
            time_text(row.both_us),
            format!("{:.2}", row.overlap),
        ]);
    }
    let collective = rows.first().map_or("", |row| row.coll);
    writeln!(stdout(), "# {collective}: what overlaps on each leader\n{table}")?;
    Ok(())
}

impl Stage<'_> {
    /// Microseconds of each leader, node by node: across nodes, on the node, both.
    fn measure(&mut self, bytes: usize, plan: &Plan, own: usize, nodes: usize) -> Result<Vec<f64>> {
        let count = (bytes / size_of::<f32>()).max(1);
        self.buffers = (0..1 + 2 * self.leads.len()).map(|_| filled(1.0, count)).collect::<Result<_>>()?;
        self.time(BOTH, 1)?;
        let once = [self.time(BOTH, 2)?.as_secs_f64()];
        let mut longest = once;
        self.world.allreduce(&once, &mut longest, Operator::Max)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped below
        let iterations = (plan.repeat_time.as_secs_f64() * 2.0 / longest[0].max(1e-9)) as u32;
        let iterations = iterations.clamp(LEAST_ITERATIONS, MOST_ITERATIONS);
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..plan.repeats {
            for (levels, times) in [INTER, INTRA, BOTH].into_iter().zip(&mut times) {
                times.push(self.time(levels, iterations)?.as_secs_f64() * 1e6 / f64::from(iterations));
            }
        }
        let mut all = vec![0.0; 3 * nodes * self.leads.len()];
        if let Some((rail, _)) = self.leaders {
            for (place, times) in times.iter().enumerate() {
                all[3 * (own * self.leads.len() + rail) + place] = median(times);
            }
        }
        self.world.allreduce_in_place(&mut all, Operator::Sum)?;
        Ok(all)
    }

    /// What so many iterations take on this rank, with a barrier before each, which does not count.
    fn time(&mut self, levels: Levels, iterations: u32) -> Result<Duration> {
        let mut time = Duration::ZERO;
        for _ in 0..iterations {
            self.world.barrier()?;
            let begun = Instant::now();
            self.once(levels)?;
            time += begun.elapsed();
        }
        Ok(time)
    }

    fn once(&mut self, levels: Levels) -> Result<()> {
        let mut requests: Vec<Option<Request<Vec<f32>>>> = self.buffers.iter().map(|_| None).collect();
        if let Some((_, leaders)) = self.leaders.as_ref().filter(|_| levels.inter) {
            let buffer = std::mem::take(&mut self.buffers[0]);
            requests[0] = Some(match self.collective {
                Collective::Reduce => leaders.ireduce(buffer, Operator::Max, 0)?,
                Collective::Allreduce => leaders.iallreduce(buffer, Operator::Max)?,
                Collective::Bcast | Collective::Barrier => leaders.ibcast(buffer, 0)?,
            });
        }
        for (rail, &leader) in self.leads.iter().enumerate().filter(|_| levels.intra) {
            let (up, down) = (1 + 2 * rail, 2 + 2 * rail);
            // What goes up and down for a chunk: an allreduce has both.
            if self.collective.reduces() {
                let buffer = std::mem::take(&mut self.buffers[up]);
                requests[up] = Some(self.node.ireduce(buffer, Operator::Max, leader)?);
            }
            if matches!(self.collective, Collective::Bcast | Collective::Allreduce) {
                let buffer = std::mem::take(&mut self.buffers[down]);
                requests[down] = Some(self.node.ibcast(buffer, leader)?);
            }
        }
        loop {
            let mut is_done = true;
            for request in requests.iter_mut().flatten() {
                is_done &= request.test()?;
            }
            if is_done {
                break;
            }
            std::thread::yield_now();
        }
        for (request, buffer) in requests.into_iter().zip(&mut self.buffers) {
            if let Some(request) = request {
                *buffer = request.wait()?;
            }
        }
        Ok(())
    }

    /// The network's module, and what is chosen on both levels.
    fn choices(&mut self, bytes: usize) -> (&'static str, String, String) {
        let count = (bytes / size_of::<f32>()).max(1);
        let mut buffer = vec![0.0_f32; count];
        let call = |buffer: &mut Vec<f32>, collective: Collective, root: usize, ask: &mut dyn FnMut(&Call<'_>)| {
            ask(&match collective {
                Collective::Reduce => Call::reduce_in_place(buffer, Operator::Max.into(), root),
                Collective::Allreduce => Call::allreduce_in_place(buffer, Operator::Max.into()),
                Collective::Bcast | Collective::Barrier => Call::bcast(buffer, root),
            });
        };
        let (mut module, mut inter, mut intra) = ("", String::new(), String::new());
        if let Some((_, leaders)) = &self.leaders {
            call(&mut buffer, self.collective, 0, &mut |call| {
                (module, inter) = (leaders.module(call).unwrap_or(""), leaders.choice(call));
            });
        }
        let on_node = if self.collective == Collective::Bcast { Collective::Bcast } else { Collective::Reduce };
        call(&mut buffer, on_node, self.leads[0], &mut |call| intra = self.node.choice(call));
        (module, inter, intra)
    }
}
