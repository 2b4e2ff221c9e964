//! Plans out of shapes.

use std::ops::Range;

use reduce_kernels::{Collective, Place};

use super::{Across, Kind, Layout, Stream, Task, TaskPlan, TaskShape, slices};

/// Chunks whose partial results a leader holds at a time in memory of its own, of each slice that it leads.
pub(super) const SLOTS: usize = 8;

impl TaskPlan {
    /// The part of `rank` in a collective of `shape` by the ranks of `layout`.
    #[must_use]
    pub fn new(layout: &Layout, shape: &TaskShape, rank: usize) -> Self {
        let mut builder = Builder::new(layout, shape, rank);
        if builder.is_node_aware() {
            let chunks: Vec<Piece> =
                (0..builder.chunks).map(|chunk| builder.piece((chunk, 0), builder.range(chunk), 0)).collect();
            builder.node_aware(&chunks);
        } else {
            (0..builder.chunks).for_each(|chunk| builder.chunk(chunk));
        }
        let Builder { tasks, streams, chunks, scratch_bytes, .. } = builder;
        Self { tasks, streams, scratch_bytes, chunks }
    }
}

/// A plan in the making.
pub(super) struct Builder<'a> {
    pub(super) layout: &'a Layout,
    shape: &'a TaskShape,
    pub(super) rank: usize,
    node: usize,
    chunks: usize,
    chunk_count: usize,
    scratch_bytes: usize,
    /// The last task that reads each slot.
    pub(super) slots: Vec<Option<usize>>,
    /// Slices for which this rank needs slots.
    led: Vec<usize>,
    tasks: Vec<Task>,
    streams: Vec<(Stream, Vec<usize>)>,
}

/// A chunk, or a slice of it, as this rank sees it.
pub(super) struct Piece {
    pub(super) chunk: usize,
    slice: usize,
    range: Range<usize>,
    rail: usize,
    /// The local rank that leads it here.
    leader: usize,
    /// Whether this rank does.
    leads: bool,
    /// Whether its node has other ranks.
    in_company: bool,
}

impl<'a> Builder<'a> {
    fn new(layout: &'a Layout, shape: &'a TaskShape, rank: usize) -> Self {
        // At most the vector: scratch memory is made for whole chunks.
        let chunk_count = (shape.chunk_bytes / shape.element_bytes.max(1)).clamp(1, shape.count.max(1));
        Self {
            layout,
            shape,
            rank,
            node: layout.node_of(rank),
            // A vector without elements still has a chunk, without which the ranks would not meet.
            chunks: shape.count.div_ceil(chunk_count).max(1),
            chunk_count,
            scratch_bytes: usize::from(shape.collective == Collective::Barrier),
            slots: vec![None; SLOTS],
            led: Vec::new(),
            tasks: Vec::new(),
            streams: Vec::new(),
        }
    }

    fn range(&self, chunk: usize) -> Range<usize> {
        let from = chunk * self.chunk_count;
        from..(from + self.chunk_count).min(self.shape.count)
    }

    fn chunk(&mut self, chunk: usize) {
        let slices: Vec<Piece> = slices::cut(self.range(chunk), self.shape.element_bytes, self.leaders())
            .enumerate()
            .map(|(slice, range)| self.piece((chunk, slice), range, self.rail(slice)))
            .collect();
        match self.shape.collective {
            Collective::Bcast => self.bcast(&slices),
            Collective::Reduce => slices.iter().for_each(|slice| self.reduce(slice)),
            Collective::Allreduce => self.allreduce(&slices),
            Collective::Barrier => slices.iter().for_each(|nothing| self.barrier(nothing)),
        }
    }

    /// Slices of a long chunk.
    fn leaders(&self) -> usize {
        if self.is_node_aware() { 1 } else { self.shape.leaders.clamp(1, self.layout.rails()) }
    }

    fn is_node_aware(&self) -> bool {
        let TaskShape { collective, across, .. } = *self.shape;
        collective == Collective::Allreduce && across == Across::NodeAware && self.layout.has_pairs()
    }

    /// Ranks of this node.
    pub(super) fn members(&self) -> usize {
        self.layout.members(self.node).len()
    }

    /// The rail of a slice: the root leads the first one of its node.
    fn rail(&self, slice: usize) -> usize {
        let first = if self.shape.collective.has_root() { self.layout.rail_of(self.shape.root) } else { 0 };
        (first + slice) % self.layout.rails()
    }

    fn piece(&self, (chunk, slice): (usize, usize), range: Range<usize>, rail: usize) -> Piece {
        let leader = self.layout.leader(self.node, rail);
        let leads = leader == self.layout.local_of(self.rank);
        let in_company = self.members() > 1;
        Piece { chunk, slice, range, rail, leader, leads, in_company }
    }

    fn bcast(&mut self, slices: &[Piece]) {
        if self.node == self.layout.node_of(self.shape.root) {
            slices.iter().for_each(|slice| self.bcast_from_here(slice));
            return;
        }
        // All slices come across before the first is handed out.
        let across: Vec<Option<usize>> =
            slices.iter().map(|slice| slice.leads.then(|| self.bcast_across(slice, None))).collect();
        for (slice, across) in slices.iter().zip(across) {
            self.down(slice, slice.leader, across);
        }
    }

    /// The root leads its node, and gives it what the other leaders there take across.
    fn bcast_from_here(&mut self, slice: &Piece) {
        let is_root = self.rank == self.shape.root;
        if slice.leads && is_root {
            self.bcast_across(slice, None);
        }
        let down = self.down(slice, self.layout.local_of(self.shape.root), None);
        if slice.leads && !is_root {
            self.bcast_across(slice, down);
        }
    }

    fn bcast_across(&mut self, slice: &Piece, after: Option<usize>) -> usize {
        let root = self.layout.node_of(self.shape.root);
        self.task(Kind::Ib, slice, Stream::Rail(slice.rail), root, Place::Recv, Some(Place::Recv), [after, None])
    }

    /// What a local rank has, for its node.
    fn down(&mut self, slice: &Piece, from: usize, after: Option<usize>) -> Option<usize> {
        let recv = Place::Recv;
        let in_company = slice.in_company;
        in_company.then(|| self.task(Kind::Sb, slice, Stream::Down, from, recv, Some(recv), [after, None]))
    }

    fn reduce(&mut self, slice: &Piece) {
        let (node, local) = (self.layout.node_of(self.shape.root), self.layout.local_of(self.shape.root));
        if self.node == node && slice.leader != local {
            self.across_and_up(slice, local);
        } else {
            self.up_and_across_to_root(slice, node);
        }
    }

    /// On the root's node, what a leader beside it has to do: it receives what comes across added to its own vector, and gives that
    /// in place of it. So operands do not stay in order.
    fn across_and_up(&mut self, slice: &Piece, root: usize) {
        let slot = slice.leads.then(|| self.slot_of(slice));
        let (mut from, mut ir) = (Place::Send, None);
        if let Some(slot) = slot {
            let free = self.slots[slot];
            from = self.slot(slot);
            let rail = Stream::Rail(slice.rail);
            ir = Some(self.task(Kind::Ir, slice, rail, self.node, Place::Send, Some(from), [free, None]));
        }
        let to = (self.rank == self.shape.root).then_some(Place::Recv);
        let sr = self.task(Kind::Sr, slice, Stream::Up, root, from, to, [ir, None]);
        if let Some(slot) = slot {
            self.slots[slot] = Some(sr);
        }
    }

    fn up_and_across_to_root(&mut self, slice: &Piece, root: usize) {
        let receives = (self.rank == self.shape.root).then_some(Place::Recv);
        let slot = (slice.leads && receives.is_none()).then(|| self.slot_of(slice));
        let (mut from, mut sr) = (Place::Send, None);
        if slice.in_company {
            let to = receives.or_else(|| slot.map(|slot| self.slot(slot)));
            let free = slot.and_then(|slot| self.slots[slot]);
            sr = Some(self.task(Kind::Sr, slice, Stream::Up, slice.leader, Place::Send, to, [free, None]));
            from = to.unwrap_or(from);
        }
        if slice.leads {
            let ir = self.task(Kind::Ir, slice, Stream::Rail(slice.rail), root, from, receives, [sr, None]);
            if let Some(slot) = slot {
                self.slots[slot] = Some(ir);
            }
        }
    }

    /// All slices go up and across before the first comes down.
    fn allreduce(&mut self, slices: &[Piece]) {
        let across: Vec<Option<usize>> = slices.iter().map(|slice| self.up_and_across(slice)).collect();
        for (slice, across) in slices.iter().zip(across) {
            // What it sends may be what it receives, so it has to be sent before.
            self.down(slice, slice.leader, across);
        }
    }

    /// The last of the slice's tasks of this rank, if it has any.
    fn up_and_across(&mut self, slice: &Piece) -> Option<usize> {
        let recv = Place::Recv;
        let mut from = Place::Send;
        let mut last = None;
        if slice.in_company {
            let to = slice.leads.then_some(recv);
            last = Some(self.task(Kind::Sr, slice, Stream::Up, slice.leader, Place::Send, to, [None; 2]));
            from = recv;
        }
        if slice.leads && self.shape.across == Across::Split {
            // The same root for both, so that the two take opposite ways.
            let root = 0;
            let to = (self.node == root).then_some(recv);
            let ir = self.task(Kind::Ir, slice, Stream::Rail(slice.rail), root, from, to, [last, None]);
            last = Some(self.task(Kind::Ib, slice, Stream::Back(slice.rail), root, recv, Some(recv), [Some(ir), None]));
        } else if slice.leads {
            last = Some(self.task(Kind::Ia, slice, Stream::Rail(slice.rail), 0, from, Some(recv), [last, None]));
        }
        last
    }

    fn barrier(&mut self, chunk: &Piece) {
        let nothing = Place::Scratch(0);
        let mut last = None;
        if chunk.in_company {
            last = Some(self.task(Kind::Sr, chunk, Stream::Up, chunk.leader, nothing, None, [None; 2]));
        }
        if chunk.leads {
            last = Some(self.task(Kind::Ia, chunk, Stream::Rail(chunk.rail), 0, nothing, None, [last, None]));
        }
        if chunk.in_company {
            self.task(Kind::Sb, chunk, Stream::Down, chunk.leader, nothing, None, [last, None]);
        }
    }

    /// The slot of this rank for a slice that it leads.
    fn slot_of(&mut self, slice: &Piece) -> usize {
        let place = self.led.iter().position(|&known| known == slice.slice).unwrap_or_else(|| {
            self.led.push(slice.slice);
            self.slots.resize(self.led.len() * SLOTS, None);
            self.led.len() - 1
        });
        place * SLOTS + slice.chunk % SLOTS
    }

    /// A place of this rank's own for a chunk, or a slice of one.
    pub(super) fn slot(&mut self, slot: usize) -> Place {
        let longest = slices::longest(self.chunk_count, self.shape.element_bytes, self.leaders());
        let stride = (longest * self.shape.element_bytes).next_multiple_of(slices::LINE_BYTES);
        self.scratch_bytes = self.scratch_bytes.max((slot + 1) * stride);
        Place::Scratch(slot * stride)
    }

    #[allow(clippy::too_many_arguments)] // a task's fields
    pub(super) fn task(
        &mut self,
        kind: Kind,
        piece: &Piece,
        stream: Stream,
        root: usize,
        from: Place,
        to: Option<Place>,
        after: [Option<usize>; 2],
    ) -> usize {
        let number = self.tasks.len();
        let (chunk, slice, range) = (piece.chunk, piece.slice, piece.range.clone());
        self.tasks.push(Task { kind, chunk, slice, range, stream, root, from, to, after });
        match self.streams.iter_mut().find(|(known, _)| *known == stream) {
            Some((_, tasks)) => tasks.push(number),
            None => self.streams.push((stream, vec![number])),
        }
        number
    }
}
