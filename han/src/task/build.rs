//! Plans out of shapes.

use std::ops::Range;

use reduce_kernels::{Collective, Place};

use super::{Kind, Layout, Shape, Stream, Task, TaskPlan};

/// Chunks whose partial results a leader holds at a time in memory of its own.
const SLOTS: usize = 8;
/// Slots begin on lines of their own.
const SLOT_ALIGN: usize = 128;

impl TaskPlan {
    /// The part of `rank` in a collective of `shape` by the ranks of `layout`.
    #[must_use]
    pub fn new(layout: &Layout, shape: &Shape, rank: usize) -> Self {
        let mut builder = Builder::new(layout, shape, rank);
        for chunk in 0..builder.chunks {
            builder.chunk(chunk);
        }
        let Builder { tasks, streams, chunks, scratch_bytes, .. } = builder;
        Self { tasks, streams, scratch_bytes, chunks }
    }
}

struct Builder<'a> {
    layout: &'a Layout,
    shape: &'a Shape,
    rank: usize,
    node: usize,
    chunks: usize,
    chunk_count: usize,
    scratch_bytes: usize,
    /// The last task that reads each slot.
    slots: [Option<usize>; SLOTS],
    tasks: Vec<Task>,
    streams: Vec<(Stream, Vec<usize>)>,
}

/// A chunk as this rank sees it.
struct Chunk {
    chunk: usize,
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

    fn chunk(&mut self, chunk: usize) {
        let Shape { collective, count, leaders, root, .. } = *self.shape;
        let (layout, node) = (self.layout, self.node);
        let from = chunk * self.chunk_count;
        let rail = match collective {
            Collective::Allreduce => chunk % leaders.clamp(1, layout.rails()),
            Collective::Barrier => 0,
            // The root leads its node.
            Collective::Bcast | Collective::Reduce => layout.rail_of(root),
        };
        let leader = layout.leader(node, rail);
        let chunk = Chunk {
            chunk,
            range: from..(from + self.chunk_count).min(count),
            rail,
            leader,
            leads: leader == layout.local_of(self.rank),
            in_company: layout.members(node).len() > 1,
        };
        match collective {
            Collective::Bcast => self.bcast(&chunk),
            Collective::Reduce => self.reduce(&chunk),
            Collective::Allreduce => self.allreduce(&chunk),
            Collective::Barrier => self.barrier(&chunk),
        }
    }

    fn bcast(&mut self, chunk: &Chunk) {
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

    fn reduce(&mut self, chunk: &Chunk) {
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

    fn allreduce(&mut self, chunk: &Chunk) {
        let recv = Place::Recv;
        let mut from = Place::Send;
        let mut last = None;
        if chunk.in_company {
            let to = chunk.leads.then_some(recv);
            last = Some(self.task(Kind::Sr, chunk, Stream::Up, chunk.leader, Place::Send, to, [None; 2]));
            from = recv;
        }
        if chunk.leads && self.shape.splits {
            // The same root for both, so that the two take opposite ways.
            let root = 0;
            let to = (self.node == root).then_some(recv);
            let ir = self.task(Kind::Ir, chunk, Stream::Rail(chunk.rail), root, from, to, [last, None]);
            last = Some(self.task(Kind::Ib, chunk, Stream::Back(chunk.rail), root, recv, Some(recv), [Some(ir), None]));
        } else if chunk.leads {
            last = Some(self.task(Kind::Ia, chunk, Stream::Rail(chunk.rail), 0, from, Some(recv), [last, None]));
        }
        if chunk.in_company {
            // What it sends may be what it receives, so it has to be sent before.
            self.task(Kind::Sb, chunk, Stream::Down, chunk.leader, recv, Some(recv), [last, None]);
        }
    }

    fn barrier(&mut self, chunk: &Chunk) {
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

    fn slot(&mut self, slot: usize) -> Place {
        let stride = (self.chunk_count * self.shape.element_bytes).next_multiple_of(SLOT_ALIGN);
        self.scratch_bytes = self.scratch_bytes.max((slot + 1) * stride);
        Place::Scratch(slot * stride)
    }

    #[allow(clippy::too_many_arguments)] // a task's fields
    fn task(
        &mut self,
        kind: Kind,
        chunk: &Chunk,
        stream: Stream,
        root: usize,
        from: Place,
        to: Option<Place>,
        after: [Option<usize>; 2],
    ) -> usize {
        let number = self.tasks.len();
        let (chunk, range) = (chunk.chunk, chunk.range.clone());
        self.tasks.push(Task { kind, chunk, range, stream, root, from, to, after });
        match self.streams.iter_mut().find(|(known, _)| *known == stream) {
            Some((_, tasks)) => tasks.push(number),
            None => self.streams.push((stream, vec![number])),
        }
        number
    }
}
