//! The steps of the chunks that are under way.

/// What each of the last `AHEAD` chunks has taken: one span, or several. All ranks take them in the order of chunks, whichever
/// of their parts asks first.
#[derive(Debug)]
pub(crate) struct Window<S, const AHEAD: usize> {
    /// Chunks that have taken theirs.
    taken: usize,
    /// By chunk modulo `AHEAD`.
    spans: [S; AHEAD],
}

impl<S: Copy + Default, const AHEAD: usize> Window<S, AHEAD> {
    pub(crate) fn new() -> Self {
        Self { taken: 0, spans: [S::default(); AHEAD] }
    }

    /// What `chunk` has taken, by `take` if it is its turn: one of the last `AHEAD`, or the next.
    #[inline]
    pub(crate) fn of(&mut self, chunk: usize, take: impl FnOnce() -> S) -> S {
        if chunk == self.taken {
            self.spans[chunk % AHEAD] = take();
            self.taken += 1;
        }
        self.spans[chunk % AHEAD]
    }

    /// What the latest chunk has taken.
    pub(crate) fn latest(&self) -> S {
        self.spans[(self.taken - 1) % AHEAD]
    }
}
