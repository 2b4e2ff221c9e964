//! What is recorded: that something was under way on a lane, from when to when.

use std::borrow::Cow;
use std::cmp::Ordering;

use shm_core::Call;

use crate::task::{Stream, Task};

/// A row of the picture, below its rank. What overlaps on a lane is drawn on as many rows as it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// What the program has called and waits for: spans lie within each other.
    Calls,
    /// Operations that go on while the program does something else.
    Operations,
    /// Tasks of one stream.
    Stream(Stream),
}

impl Lane {
    pub(super) fn name(self) -> Cow<'static, str> {
        match self {
            Self::Calls => "calls".into(),
            Self::Operations => "operations".into(),
            Self::Stream(Stream::Up) => "memory, up".into(),
            Self::Stream(Stream::Down) => "memory, down".into(),
            Self::Stream(Stream::Rail(rail)) => format!("rail {rail}").into(),
            Self::Stream(Stream::Back(rail)) => format!("rail {rail}, back").into(),
            Self::Stream(Stream::First(ranks)) => format!("memory, first {ranks}").into(),
            Self::Stream(Stream::Pair(0)) => "pair, last step".into(),
            Self::Stream(Stream::Pair(later)) => format!("pair, {later} before the last").into(),
        }
    }

    /// From what the program does to where its data go: up, across and down.
    pub(super) fn compare(self, other: Self) -> Ordering {
        let place = |lane: Self| match lane {
            Self::Calls => (0, 0, 0),
            Self::Operations => (1, 0, 0),
            Self::Stream(Stream::Up) => (2, 0, 0),
            Self::Stream(Stream::Rail(rail)) => (3, rail, 0),
            Self::Stream(Stream::Back(rail)) => (3, rail, 1),
            // In the order of the steps.
            Self::Stream(Stream::Pair(later)) => (4, usize::MAX - later, 0),
            Self::Stream(Stream::First(ranks)) => (5, ranks, 0),
            Self::Stream(Stream::Down) => (6, 0, 0),
        };
        place(self).cmp(&place(other))
    }
}

/// A word that a trace has stored once: an algorithm, an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(pub(super) u16);

/// What is under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct What {
    pub(super) name: &'static str,
    pub(super) of: Option<Operation>,
}

/// How a call of the program is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallName {
    pub(crate) communicator: u32,
    /// The lowest rank of its group: groups that have no rank in common may have the same communicator.
    pub(crate) group: u64,
    /// Counts the calls on the communicator from 0, so it is the same on all ranks.
    pub(crate) number: u64,
}

/// The collective that it is, or is a part of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) call: CallName,
    pub(super) bytes: u64,
    pub(super) part: Part,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Whole { root: Option<u32>, choice: Label },
    Task { chunk: u64, is_in_memory: bool },
}

impl What {
    /// A call that goes the way that `choice` tells.
    pub(crate) fn call(call: &Call<'_>, name: CallName, choice: Label) -> Self {
        let has_root = call.collective.has_root();
        let root = has_root.then(|| u32::try_from(call.root).unwrap_or(u32::MAX));
        let of = Operation { call: name, bytes: call.bytes() as u64, part: Part::Whole { root, choice } };
        Self { name: call.collective.name(), of: Some(of) }
    }

    /// A task of a call.
    pub(crate) fn task(task: &Task, call: CallName, element_bytes: usize) -> Self {
        let is_in_memory = task.stream.is_in_memory();
        let part = Part::Task { chunk: task.chunk as u64, is_in_memory };
        let bytes = (task.range.len() * element_bytes) as u64;
        Self { name: task.kind.name(), of: Some(Operation { call, bytes, part }) }
    }

    /// The call that it is or belongs to.
    pub(crate) fn name_of_call(&self) -> Option<CallName> {
        self.of.map(|of| of.call)
    }

    /// Something that is no operation of the program.
    pub(crate) fn named(name: &'static str) -> Self {
        Self { name, of: None }
    }
}

/// Something that has been under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) lane: Lane,
    pub(super) what: What,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    pub(super) ending: Ending,
}

/// How a span ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Well,
    /// With an error.
    Failed(Label),
    /// Not yet.
    Open,
}
