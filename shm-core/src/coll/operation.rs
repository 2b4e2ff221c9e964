//! Any collective of one node in any form: chosen, begun, polled.

use super::choice::{Decision, Form, Kind, Stay, Turn, Way};
use super::sm::{barrier, bcast, chain, direct, flat, relay, rounds, slice, tree};
use super::solo::joint;
use super::{Poll, Progress, fold};
use crate::error::Result;
use crate::ring::Ring;
use crate::segment::layout::INLINE_BYTES;
use crate::sync::Wakers;
use crate::sys::clock;
use crate::waiting::carry_out;
use reduce_kernels::{Call, Collective};

/// Chooses the form from what all ranks know alike: ranks, sizes and settings.
#[inline]
fn choose(ring: &Ring, call: &Call<'_>) -> Decision {
    ring.terms().decide(call.collective, call.bytes(), || call.folding())
}

/// The form that `call` would take, were it not a trial.
pub(crate) fn likely(ring: &Ring, call: &Call<'_>) -> Form {
    match choose(ring, call) {
        Decision::Together if !ring.prefers_joint(call) => otherwise(ring, call),
        decision => decision.form(),
    }
}

/// What ranks do who do not work jointly.
fn otherwise(ring: &Ring, call: &Call<'_>) -> Form {
    ring.terms().decide_by_chunks(call.collective, call.bytes()).form()
}

/// True if `form` works on ranks' own buffers where these can be reached.
pub(crate) fn lends(form: Form, collective: Collective, bytes: usize, in_place: bool) -> bool {
    match form {
        Form::Alone | Form::Flat => false,
        Form::Tree => bytes > INLINE_BYTES,
        Form::Direct => collective == Collective::Bcast || direct::may_lend(collective, in_place),
        Form::Slice | Form::Ring | Form::Chain | Form::Joint => true,
    }
}

/// Any collective in any form.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one is under way at a time, and it stays where it is
pub(crate) enum Operation<'a> {
    Done,
    FlatBarrier(barrier::Flat),
    TreeBarrier(barrier::Dissemination),
    FlatBcast(bcast::Flat<Call<'a>>),
    TreeBcast(tree::Bcast<'a>),
    CellBcast(bcast::Pipelined<'a>),
    RelayedBcast(relay::Bcast<'a>),
    FlatReduce(flat::Reduce<Call<'a>>),
    TreeReduce(tree::Reduce<'a>),
    DirectReduce(direct::Reduce<'a>),
    SliceReduce(slice::Reduce<'a>),
    RingReduce(rounds::Reduce<'a>),
    ChainReduce(Box<chain::Reduce<'a>>),
    Joint(joint::Joint<'a>),
    Timed(Box<Timed<'a>>),
}

/// An operation of a trial.
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    operation: Operation<'a>,
    kind: Kind,
    bytes: usize,
    /// The rank does nothing else meanwhile.
    stays: bool,
    cells_used: usize,
    cell_pages: u64,
    came_ns: u64,
}

impl Timed<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        let poll = self.operation.poll(ring)?;
        if poll.is_ready() {
            let stay = if !self.stays {
                Stay::WANDERED
            } else if ring.cell_pages() != self.cell_pages {
                Stay::COLD
            } else {
                Stay { came_ns: self.came_ns, left_ns: clock::now_ns() }
            };
            let warm = ring.cells_used() == self.cells_used;
            ring.trials().went(self.kind, self.bytes, stay, warm);
        }
        Ok(poll)
    }
}

impl<'a> Operation<'a> {
    /// Enters the operation on this rank. `stays`: the rank does nothing else before it has completed.
    pub(crate) fn begin(ring: &mut Ring, call: Call<'a>, stays: bool) -> Self {
        let decision = choose(ring, &call);
        Self::decided(ring, call, decision, stays)
    }

    /// The same, as was decided.
    fn decided(ring: &mut Ring, call: Call<'a>, decision: Decision, stays: bool) -> Self {
        ring.enter(call.signature());
        ring.record();
        match decision {
            Decision::Together => Self::by_trial(ring, call, stays),
            decision => Self::in_form(ring, call, decision.form(), stays),
        }
    }

    /// As all ranks' trials say.
    fn by_trial(ring: &mut Ring, call: Call<'a>, stays: bool) -> Self {
        match ring.trials().turn(call.collective, call.bytes()) {
            Turn::Goes(way) => Self::in_way(ring, call, way, stays),
            Turn::Timed(way, kind) => {
                if let Some(again) = ring.trials().begins(kind) {
                    ring.time_stores();
                    if again {
                        ring.lengthen();
                    }
                }
                let came_ns = clock::now_ns();
                let (bytes, cells_used, cell_pages) = (call.bytes(), ring.cells_used(), ring.cell_pages());
                let operation = Self::in_way(ring, call, way, stays);
                Self::Timed(Box::new(Timed { operation, kind, bytes, stays, cells_used, cell_pages, came_ns }))
            }
            Turn::Ends(kind, took) => Self::Joint(joint::Joint::new(ring, call, stays, Some((kind, took)))),
        }
    }

    fn in_way(ring: &mut Ring, call: Call<'a>, way: Way, stays: bool) -> Self {
        let form = match way {
            Way::Jointly => Form::Joint,
            Way::Otherwise => otherwise(ring, &call),
        };
        Self::in_form(ring, call, form, stays)
    }

    fn in_form(ring: &mut Ring, call: Call<'a>, form: Form, stays: bool) -> Self {
        match (call.collective, form) {
            (_, Form::Alone) => {
                fold::alone(&call);
                Self::Done
            }
            (Collective::Barrier, Form::Tree) if ring.follows_levels() => {
                Self::TreeReduce(tree::Reduce::new(ring, call))
            }
            (Collective::Barrier, Form::Tree) => Self::TreeBarrier(barrier::Dissemination::new(ring)),
            (Collective::Barrier, _) => Self::FlatBarrier(barrier::Flat::new(ring)),
            (Collective::Bcast, Form::Flat) => Self::FlatBcast(bcast::Flat::new(ring, call)),
            (Collective::Bcast, Form::Tree) if call.bytes() > INLINE_BYTES => {
                Self::RelayedBcast(relay::Bcast::new(ring, call))
            }
            (Collective::Bcast, Form::Tree) => Self::TreeBcast(tree::Bcast::new(ring, call)),
            (_, Form::Joint) => Self::Joint(joint::Joint::new(ring, call, stays, None)),
            (Collective::Bcast, _) => Self::CellBcast(bcast::Pipelined::new(ring, call)),
            (_, Form::Flat) => Self::FlatReduce(flat::Reduce::new(ring, call)),
            (_, Form::Tree) => Self::TreeReduce(tree::Reduce::new(ring, call)),
            (_, Form::Direct) => Self::DirectReduce(direct::Reduce::new(ring, call)),
            (_, Form::Slice) => Self::SliceReduce(slice::Reduce::new(ring, call)),
            (_, Form::Ring) => Self::RingReduce(rounds::Reduce::new(ring, call)),
            (_, Form::Chain) => Self::ChainReduce(Box::new(chain::Reduce::new(ring, call))),
        }
    }
}

/// Enters the operation, carries it out and waits for it.
///
/// The small forms are driven as what they are, without the enumeration's size and branches.
#[inline]
pub(crate) fn run(ring: &mut Ring, call: &Call<'_>, idle: &mut dyn FnMut() -> Result<bool>) -> Result<()> {
    let decision = choose(ring, call);
    if decision.form() != Form::Flat {
        #[allow(unsafe_code)] // a call that is lent is carried out as one of one's own
        // SAFETY: the lent one is not begun, and this one is completed or given up when this function returns.
        let operation = Operation::decided(ring, unsafe { call.again() }, decision, true);
        return carry_out(ring, operation, idle);
    }
    let before = ring.enter(call.signature());
    match call.collective {
        Collective::Barrier => {
            let leaving = barrier::Leaving::behind(ring, before);
            let operation = barrier::Flat::new(ring);
            carry_out(ring, operation, idle)?;
            if let Some(leaving) = leaving {
                leaving.wait(ring);
            }
            Ok(())
        }
        Collective::Bcast => {
            let operation = bcast::Flat::new(ring, call);
            carry_out(ring, operation, idle)
        }
        Collective::Reduce | Collective::Allreduce => {
            let operation = flat::Reduce::new(ring, call);
            carry_out(ring, operation, idle)
        }
    }
}

impl Progress for Operation<'_> {
    #[inline]
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        match self {
            Self::Done => Ok(Poll::Ready(())),
            Self::FlatBarrier(op) => op.poll(ring),
            Self::TreeBarrier(op) => op.poll(ring),
            Self::FlatBcast(op) => op.poll(ring),
            Self::TreeBcast(op) => op.poll(ring),
            Self::CellBcast(op) => op.poll(ring),
            Self::RelayedBcast(op) => op.poll(ring),
            Self::FlatReduce(op) => op.poll(ring),
            Self::TreeReduce(op) => op.poll(ring),
            Self::DirectReduce(op) => op.poll(ring),
            Self::SliceReduce(op) => op.poll(ring),
            Self::RingReduce(op) => op.poll(ring),
            Self::ChainReduce(op) => op.poll(ring),
            Self::Joint(op) => op.poll(ring),
            Self::Timed(op) => op.poll(ring),
        }
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        match self {
            Self::Done => None,
            Self::FlatBarrier(op) => op.awaits(ring),
            Self::TreeBarrier(op) => op.awaits(ring),
            Self::FlatBcast(op) => op.awaits(ring),
            Self::TreeBcast(op) => op.awaits(ring),
            Self::CellBcast(op) => op.awaits(ring),
            Self::RelayedBcast(op) => op.awaits(ring),
            Self::FlatReduce(op) => op.awaits(ring),
            Self::TreeReduce(op) => op.awaits(ring),
            Self::DirectReduce(op) => op.awaits(ring),
            Self::SliceReduce(op) => op.awaits(ring),
            Self::RingReduce(op) => op.awaits(ring),
            Self::ChainReduce(op) => op.awaits(ring),
            Self::Joint(op) => op.awaits(ring),
            Self::Timed(op) => op.operation.awaits(ring),
        }
    }

    fn wakers(&self, ring: &Ring) -> Wakers {
        match self {
            Self::FlatBarrier(op) => op.wakers(ring),
            Self::TreeBarrier(op) => op.wakers(ring),
            Self::FlatBcast(op) => op.wakers(ring),
            Self::CellBcast(op) => op.wakers(ring),
            Self::FlatReduce(op) => op.wakers(ring),
            Self::DirectReduce(op) => op.wakers(ring),
            Self::SliceReduce(op) => op.wakers(ring),
            Self::ChainReduce(op) => op.wakers(ring),
            Self::Done
            | Self::TreeBcast(_)
            | Self::RelayedBcast(_)
            | Self::TreeReduce(_)
            | Self::RingReduce(_)
            | Self::Joint(_)
            | Self::Timed(_) => Wakers::ALL,
        }
    }
}
