//! What was chosen and planned, kept for the next call of the same shape.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use net_fabric::{FabricComm, Plan};
use shm_core::{Call, Collective};

use crate::context::Inner;
use crate::select::NodesForm;
use crate::select::form::{Choice, OverNodes};
use crate::select::{Inter, tuned};
use crate::task::{Layout, Stream, TaskPlan};

/// Tasks of all plans that a communicator keeps.
const MOST_TASKS: usize = 1 << 14;
/// Lengths whose choices descriptions show.
const DESCRIBED_BYTES: [usize; 3] = [8, 64 << 10, 4 << 20];
/// What says more of them.
const DESCRIBED_BY: &str = "han explain COLL BYTES has all";

/// How a call is carried out by this rank.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) choice: Choice,
    /// Without tasks where the form is flat.
    pub(super) plan: TaskPlan,
    /// One chunk, whose tasks follow one another.
    pub(super) is_short: bool,
}

impl Prepared {
    /// How the tasks of a stream between nodes are carried out.
    #[inline]
    pub(super) fn inter(&self, stream: Stream) -> &Plan {
        if matches!(stream, Stream::Back(_) | Stream::Pair(_)) { &self.choice.back } else { &self.choice.inter }
    }
}

/// What a rank's plan depends on, on one communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Occasion {
    collective: Collective,
    root: usize,
    count: usize,
    element_bytes: usize,
    commutative: bool,
}

/// Plans by occasion.
#[derive(Debug, Default)]
pub(super) struct Kept {
    plans: HashMap<Occasion, Rc<Prepared>>,
    last: Option<(Occasion, Rc<Prepared>)>,
    tasks: usize,
    /// What decides in place of the configuration.
    settings: Option<Inter>,
}

impl Kept {
    /// Lets `settings` decide from now on, or the configuration.
    pub(super) fn choose_by(&mut self, settings: Option<Inter>) {
        *self = Self { settings, ..Self::default() };
    }

    /// What is chosen for `call`.
    pub(super) fn choose(&self, flat: &FabricComm, layout: &Layout, call: &Call<'_>, context: &Inner) -> Choice {
        choose(flat, layout, &Occasion::of(call), context, self.settings.as_ref())
    }

    /// A line for each collective and a few lengths: what is chosen, and why.
    pub(super) fn describe(&self, flat: &FabricComm, layout: &Layout, context: &Inner) -> String {
        let element_bytes = size_of::<f64>();
        let mut text = format!("choices, for root 0 and doubles ({DESCRIBED_BY}):\n");
        for collective in Collective::ALL {
            let lengths: &[usize] = if collective == Collective::Barrier { &[0] } else { &DESCRIBED_BYTES };
            for &bytes in lengths {
                let count = bytes / element_bytes;
                let occasion = Occasion { collective, root: 0, count, element_bytes, commutative: true };
                let choice = choose(flat, layout, &occasion, context, self.settings.as_ref());
                let length = if bytes > 0 { format!(" of {bytes}") } else { String::new() };
                let _ = writeln!(text, "  {collective}{length}: {choice}{}", reasons(&choice, bytes));
            }
        }
        text
    }

    /// How `call`, which was checked, is carried out.
    #[inline]
    pub(super) fn get(&mut self, flat: &FabricComm, layout: &Layout, call: &Call<'_>, context: &Inner) -> Rc<Prepared> {
        let occasion = Occasion::of(call);
        match &self.last {
            Some((last, prepared)) if *last == occasion => Rc::clone(prepared),
            _ => self.look_up(occasion, flat, layout, call, context),
        }
    }

    fn look_up(
        &mut self,
        occasion: Occasion,
        flat: &FabricComm,
        layout: &Layout,
        call: &Call<'_>,
        context: &Inner,
    ) -> Rc<Prepared> {
        let prepared = match self.plans.get(&occasion) {
            Some(prepared) => Rc::clone(prepared),
            None => {
                let prepared = Rc::new(prepare(flat, layout, self.choose(flat, layout, call, context)));
                let tasks = prepared.plan.tasks.len() + 1;
                if self.tasks + tasks > MOST_TASKS {
                    // Who uses so many different ones gains little from any.
                    self.choose_by(self.settings);
                }
                self.tasks += tasks;
                self.plans.insert(occasion, Rc::clone(&prepared));
                prepared
            }
        };
        self.last = Some((occasion, Rc::clone(&prepared)));
        prepared
    }
}

impl Occasion {
    fn of(call: &Call<'_>) -> Self {
        Self {
            collective: call.collective,
            root: call.root,
            count: call.count,
            element_bytes: call.datatype.size(),
            commutative: call.op.as_ref().is_none_or(|op| op.is_commutative()),
        }
    }
}

/// Why a choice for so many bytes is as it is, in short.
fn reasons(choice: &Choice, bytes: usize) -> String {
    let is_cut = choice.form == NodesForm::Hierarchical && choice.shape.chunk_bytes < bytes;
    let because = |what: &str| {
        let point = choice.points.iter().find(|point| point.what == what);
        point.map(|point| point.because.as_str()).unwrap_or_default()
    };
    let form = (choice.form == NodesForm::Flat).then(|| format!(", {}", because("form")));
    let chunks = is_cut.then(|| format!(" in chunks of {}, {}", choice.shape.chunk_bytes, because("segment_bytes")));
    let algorithm = format!("; {}", because("algorithm"));
    [form, chunks, Some(algorithm)].into_iter().flatten().collect()
}

fn prepare(flat: &FabricComm, layout: &Layout, choice: Choice) -> Prepared {
    let plan = match choice.form {
        NodesForm::Flat => TaskPlan { tasks: Vec::new(), streams: Vec::new(), scratch_bytes: 0, chunks: 0 },
        NodesForm::Hierarchical => TaskPlan::new(layout, &choice.shape, flat.rank()),
    };
    let is_short = plan.chunks == 1;
    Prepared { choice, plan, is_short }
}

/// What is chosen on an occasion by `settings`, or by the configuration.
fn choose(flat: &FabricComm, layout: &Layout, of: &Occasion, context: &Inner, settings: Option<&Inter>) -> Choice {
    let Occasion { collective, root, count, element_bytes, commutative } = *of;
    let over = OverNodes {
        collective,
        count,
        element_bytes,
        commutative,
        reproducible: context.config.settings.reproducible,
        // A wrong one is found by the check of the call.
        root: root.min(flat.size() - 1),
        shares_cores: context.shares_cores(),
        wire_mbit_s: context.wire_mbit_s(),
        layout,
        topology: flat.topology().map(|topology| &**topology),
    };
    let provider = context.network.as_ref().map(|network| network.provider.as_str());
    match settings {
        Some(settings) => tuned::choose(&over, settings, None, provider),
        None => tuned::choose(&over, &context.config.inter, context.config.tuning.as_deref(), provider),
    }
}
