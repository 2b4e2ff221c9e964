//! Plans out of shapes.

use std::ops::Range;

use reduce_kernels::{Collective, Place};

use super::{Across, Kind, Layout, Shape, Stream, Task, TaskPlan, slices};

/// Chunks whose partial results a leader holds at a time in memory of its own.
pub(super) const SLOTS: usize = 8;

impl TaskPlan {
    /// The part of `rank` in a collective of `shape` by the ranks of `layout`.
    #[must_use]
    pub fn new(layout: &Layout, shape: &Shape, rank: usize) -> Self {
        let mut builder = Builder::new(layout, shape, rank);
        if shape.collective == Collective::Allreduce && shape.across == Across::NodeAware && layout.has_pairs() {
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
    shape: &'a Shape,
    pub(super) rank: usize,
    node: usize,
    chunks: usize,
    chunk_count: usize,
    scratch_bytes: usize,
    /// The last task that reads each slot.
    pub(super) slots: [Option<usize>; SLOTS],
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
    fn new(layout: &'a Layout, shape: &'a Shape, rank: usize) -> Self {
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
            slots: [None; SLOTS],
            tasks: Vec::new(),
            streams: Vec::new(),
        }
    }

    fn range(&self, chunk: usize) -> Range<usize> {
        let from = chunk * self.chunk_count;
        from..(from + self.chunk_count).min(self.shape.count)
    }

    fn chunk(&mut self, chunk: usize) {
        let Shape { collective, element_bytes, leaders, root, .. } = *self.shape;
        let range = self.range(chunk);
        // The root leads its node.
        let of_root = self.layout.rail_of(root);
        match collective {
            Collective::Bcast => self.bcast(&self.piece((chunk, 0), range, of_root)),
            Collective::Reduce => self.reduce(&self.piece((chunk, 0), range, of_root)),
            Collective::Allreduce => {
                let leaders = leaders.clamp(1, self.layout.rails());
                let slices = slices::cut(range, element_bytes, leaders).enumerate();
                let slices: Vec<_> = slices.map(|(slice, range)| self.piece((chunk, slice), range, slice)).collect();
                self.allreduce(&slices);
            }
            Collective::Barrier => self.barrier(&self.piece((chunk, 0), range, 0)),
        }
    }

    fn piece(&self, (chunk, slice): (usize, usize), range: Range<usize>, rail: usize) -> Piece {
        let leader = self.layout.leader(self.node, rail);
        let leads = leader == self.layout.local_of(self.rank);
        let in_company = self.layout.members(self.node).len() > 1;
        Piece { chunk, slice, range, rail, leader, leads, in_company }
    }

    fn bcast(&mut self, chunk: &Piece) {
        let root = self.layout.node_of(self.shape.root);
        let recv = Place::Recv;
        let ib = chunk
            .leads
            .then(|| self.task(Kind::Ib, chunk, Stream::Rail(chunk.rail), root, recv, Some(recv), [None; 2]));
        if chunk.in_company {
            // The root has what the others wait for.
            let after = ib.filter(|_| self.rank != self.shape.root);
            self.task(Kind::Sb, chunk, Stream::Down, chunk.leader, recv, Some(recv), [after, None]);
        }
    }

    fn reduce(&mut self, chunk: &Piece) {
        let is_root = self.rank == self.shape.root;
        let root = self.layout.node_of(self.shape.root);
        let mut from = Place::Send;
        let mut sr = None;
        let slot = chunk.chunk % SLOTS;
        if chunk.in_company {
            let to = match (chunk.leads, is_root) {
                (true, true) => Some(Place::Recv),
                (true, false) => Some(self.slot(slot)),
                _ => None,
            };
            let free = self.slots[slot].filter(|_| matches!(to, Some(Place::Scratch(_))));
            sr = Some(self.task(Kind::Sr, chunk, Stream::Up, chunk.leader, Place::Send, to, [free, None]));
            from = to.unwrap_or(from);
        }
        if chunk.leads {
            let to = is_root.then_some(Place::Recv);
            let ir = self.task(Kind::Ir, chunk, Stream::Rail(chunk.rail), root, from, to, [sr, None]);
            self.slots[slot] = Some(ir);
        }
    }

    /// All slices go up and across before the first comes down.
    fn allreduce(&mut self, slices: &[Piece]) {
        let across: Vec<Option<usize>> = slices.iter().map(|slice| self.up_and_across(slice)).collect();
        for (slice, across) in slices.iter().zip(across).filter(|(slice, _)| slice.in_company) {
            // What it sends may be what it receives, so it has to be sent before.
            self.task(Kind::Sb, slice, Stream::Down, slice.leader, Place::Recv, Some(Place::Recv), [across, None]);
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

    /// A place of this rank's own for a chunk.
    pub(super) fn slot(&mut self, slot: usize) -> Place {
        let stride = (self.chunk_count * self.shape.element_bytes).next_multiple_of(slices::LINE_BYTES);
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
