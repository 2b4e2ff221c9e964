//! Payloads: where they stand in a step's place, and how they come there.
#![allow(unsafe_code)] // writes to memory that other processes map

use super::{Ring, Span};
use crate::copy::Access;
use crate::copy::cico::{LINE, copy_in, copy_past_caches, prefetch_for_read, prefetch_for_write};
use crate::error::Result;
use crate::segment::layout::{INLINE_BYTES, POLLED_BYTES};

/// Lines of an annex that are asked for before the next payload is there: more gain nothing. Cells are asked for whole.
const EXPECTED_LINES: usize = 4;
/// Longer messages have no cells asked for in advance, with a core for each rank and on shared cores: there it costs more than
/// it gains.
const LONGEST_EXPECTED: usize = 256 << 10;
const LONGEST_EXPECTED_SHARED: usize = 32 << 10;
/// Payloads from here on are not asked for by their readers: their writer is at work on these lines for so long that it would
/// lose them again and again.
const LONG_BYTES: usize = 512;

impl Ring {
    /// Copies `bytes` at `from` into this rank's slot of `span`, beside the flag.
    ///
    /// # Safety
    /// [`may_write`](Self::may_write) has allowed it, the span is not yet published, `bytes` is at
    /// most [`INLINE_BYTES`] and `from` is valid for that many.
    #[inline(always)] // few instructions, in front of the flag that peers wait for
    pub(crate) unsafe fn put_inline(&self, span: Span, from: *const u8, bytes: usize) {
        debug_assert!(bytes <= INLINE_BYTES);
        self.slot(self.rank, span.step()).write(|to| {
            // SAFETY: the slot has room for INLINE_BYTES, only this rank writes to it, nobody reads it
            // before it is published, and user memory does not overlap the segment.
            unsafe { copy_in(to, from, bytes) }
        });
    }

    /// Whether a payload stands beside its flag.
    #[inline]
    fn is_beside(&self, bytes: usize) -> bool {
        bytes <= self.annexes.beside_bytes()
    }

    /// Takes the next step with room for a payload of at most a cell.
    #[inline]
    pub(crate) fn take_payload(&mut self, bytes: usize) -> Span {
        self.take(if self.is_beside(bytes) || bytes <= self.annexes.bytes() { 0 } else { bytes })
    }

    /// Copies `bytes` at `from` into this rank's part of `span`: beside the flag, into its annex, or into its cell.
    ///
    /// # Safety
    /// As for [`put_inline`](Self::put_inline), for at most the bytes that the span was taken for.
    #[inline(always)]
    pub(crate) unsafe fn put_payload(&mut self, span: Span, from: *const u8, bytes: usize) {
        if self.is_beside(bytes) {
            // SAFETY: the caller's promise.
            unsafe { self.put_inline(span, from, bytes) };
        } else {
            // SAFETY: the same.
            unsafe { self.put_apart(span, from, bytes) };
        }
    }

    /// The same for a payload that does not stand beside its flag.
    ///
    /// # Safety
    /// As for [`put_payload`](Self::put_payload).
    #[inline(never)]
    unsafe fn put_apart(&mut self, span: Span, from: *const u8, bytes: usize) {
        if bytes <= self.annexes.bytes() {
            let annex = self.annexes.own(self.rank, span.step());
            // SAFETY: an annex has room, and is this rank's as long as the slot is.
            unsafe { copy_in(annex, from, bytes) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.put_cells(span, 0, from, bytes) };
        }
    }

    /// Copies `bytes` at `from` into this rank's cells of `span`, from `offset` on.
    ///
    /// # Safety
    /// [`may_write`](Self::may_write) has allowed the span, which has room for `offset + bytes`; no peer reads these
    /// bytes, or adds to them, before a flag that this rank has yet to publish; `from` is valid for `bytes` and not in these cells.
    #[inline]
    pub(crate) unsafe fn put_cells(&mut self, span: Span, offset: usize, from: *const u8, bytes: usize) {
        // SAFETY: nobody else writes to these bytes before a flag of this rank; the rest is the caller's promise.
        unsafe { self.cells.put(self.rank, span, offset, from, bytes) };
    }

    /// Copies `bytes` of a bcast from `rank`'s cells of `span` to `to`; if that was decided, `past_caches`.
    ///
    /// # Safety
    /// The span is published and was taken for as many, and this rank has not consumed it; `to` is valid for them, this rank's own.
    pub(crate) unsafe fn take_cells(&mut self, to: *mut u8, rank: usize, span: Span, bytes: usize, past_caches: bool) {
        let from = self.cells(rank, span);
        if past_caches {
            // SAFETY: the caller's promise.
            return unsafe { copy_past_caches(to, from, bytes) };
        }
        // SAFETY: the same.
        unsafe { self.from_cells.copy_out(to, rank, from, bytes) };
    }

    /// Copies `bytes` of a bcast of `call_bytes` from the vector of `rank`, from `at` on, to `to`: if it is mapped and no cache holds
    /// all vectors, past these.
    ///
    /// # Errors
    /// The kernel cannot read it.
    ///
    /// # Safety
    /// It has as many bytes there, which its rank keeps as they are until this one has published a flag; `to` is valid for them,
    /// this rank's own, and not in it.
    pub(crate) unsafe fn take_abroad(
        &mut self,
        to: *mut u8,
        (rank, vector): (usize, Access),
        at: usize,
        bytes: usize,
        call_bytes: usize,
    ) -> Result<()> {
        match vector {
            Access::Mapped(from) if self.terms.is_beyond_caches(call_bytes) => {
                // SAFETY: the caller's promise.
                unsafe { copy_past_caches(to, from.wrapping_add(at), bytes) };
            }
            // SAFETY: the same.
            Access::Mapped(from) => unsafe { self.from_vectors.copy_out(to, rank, from.wrapping_add(at), bytes) },
            // SAFETY: the same.
            Access::Kernel(from) => unsafe { self.job.reach().read(from, at, to, bytes) }?,
        }
        Ok(())
    }

    /// Copies `bytes` at `from` into a peer's vector, from `at` on, for a call of `call_bytes`: if it is mapped and no cache holds
    /// all vectors, past these. `was_read`: this rank has just read what it overwrites there, which its caches hold then.
    ///
    /// # Errors
    /// The kernel cannot write to it.
    ///
    /// # Safety
    /// It has room for them, which its rank leaves to this one until a flag that this rank has yet to publish; `from` is valid
    /// for `bytes` and not in it.
    pub(crate) unsafe fn put_abroad(
        &mut self,
        vector: Access,
        at: usize,
        from: *const u8,
        bytes: usize,
        call_bytes: usize,
        was_read: bool,
    ) -> Result<()> {
        let past_caches = !was_read && self.terms.is_beyond_caches(call_bytes);
        match vector {
            // SAFETY: the caller's promise.
            Access::Mapped(to) if past_caches => unsafe { copy_past_caches(to.wrapping_add(at), from, bytes) },
            // SAFETY: the same.
            Access::Mapped(to) => unsafe { self.to_vectors.copy_in(to.wrapping_add(at), from, bytes, !was_read) },
            // SAFETY: the same.
            Access::Kernel(to) => unsafe { self.job.reach().write(to, at, from, bytes) }?,
        }
        Ok(())
    }

    /// Where this rank's `bytes` from `offset` on of its cells of `span` are, to be written otherwise; their pages are taken first.
    #[inline]
    pub(crate) fn own_cells(&mut self, span: Span, offset: usize, bytes: usize) -> *mut u8 {
        self.cells.room_for(self.rank, span, offset, bytes)
    }

    /// Where `rank` has put a payload of `bytes` in `span`.
    #[inline]
    pub(crate) fn payload(&self, rank: usize, span: Span, bytes: usize) -> *const u8 {
        if self.is_beside(bytes) {
            self.inline(rank, span)
        } else if bytes <= self.annexes.bytes() {
            self.annexes.at(rank, span.step())
        } else {
            self.cells(rank, span)
        }
    }

    /// The payload beside `rank`'s flag of `span`.
    #[inline]
    pub(crate) fn inline(&self, rank: usize, span: Span) -> *const u8 {
        self.slot(rank, span.step()).read(|from| from)
    }

    /// The cells of `rank` in `span`.
    #[inline]
    pub(crate) fn cells(&self, rank: usize, span: Span) -> *mut u8 {
        self.cells.at(rank, span)
    }

    /// Every rank's payload of `bytes` in `span`, in rank order, with `own` for this rank's.
    #[inline]
    pub(crate) fn payloads(&mut self, span: Span, bytes: usize, own: *const u8) -> &[*const u8] {
        let mut sources = std::mem::take(&mut self.sources);
        sources.clear();
        let payload = |rank| if rank == self.rank { own } else { self.payload(rank, span, bytes) };
        sources.extend((0..self.size()).map(payload));
        self.sources = sources;
        &self.sources
    }

    /// `own`, then the payload beside the flags of `ranks`.
    pub(crate) fn inline_sources(
        &mut self,
        span: Span,
        own: *const u8,
        ranks: impl Iterator<Item = usize>,
    ) -> &[*const u8] {
        let mut sources = std::mem::take(&mut self.sources);
        sources.clear();
        sources.push(own);
        sources.extend(ranks.map(|rank| self.inline(rank, span)));
        self.sources = sources;
        &self.sources
    }

    /// Every rank's cells of `span`, from `offset` on, in rank order, with `own` for this rank's.
    pub(crate) fn cell_sources(&mut self, span: Span, offset: usize, own: *const u8) -> &[*const u8] {
        let cells = |ring: &Self, rank| ring.cells(rank, span).wrapping_add(offset).cast_const();
        self.sources(|ring, rank| if rank == ring.rank { own } else { cells(ring, rank) })
    }

    /// What `of` says of every rank, in rank order.
    pub(crate) fn sources(&mut self, mut of: impl FnMut(&Self, usize) -> *const u8) -> &[*const u8] {
        let mut sources = std::mem::take(&mut self.sources);
        sources.clear();
        sources.extend((0..self.size()).map(|rank| of(self, rank)));
        self.sources = sources;
        &self.sources
    }

    /// As [`published`](Self::published), for a payload of `bytes` that this rank reads next: while it is not there, the
    /// lines of a short one are asked for, so that they come beside the flag and not one after it. Only where ranks have a core each:
    /// elsewhere the writer may not run, and looks cost the core that it waits for.
    ///
    /// # Errors
    /// As [`published`](Self::published).
    #[inline(always)] // polled
    pub(crate) fn look_for_payload(&self, peer: usize, span: Span, bytes: usize) -> Result<bool> {
        if self.published(peer, span)? {
            return Ok(true);
        }
        if bytes > POLLED_BYTES && bytes < LONG_BYTES && self.own_cores() {
            self.fetch_payload(peer, span, bytes);
        }
        Ok(false)
    }

    /// As [`published_by_all`](Self::published_by_all), for payloads of `bytes`; see [`look_for_payload`](Self::look_for_payload).
    ///
    /// # Errors
    /// As [`published`](Self::published).
    #[inline(always)] // polled
    pub(crate) fn look_for_payloads(&self, span: Span, bytes: usize, next: &mut usize) -> Result<bool> {
        while let Some(&peer) = self.peers.get(*next) {
            if !self.look_for_payload(peer, span, bytes)? {
                return Ok(false);
            }
            *next += 1;
        }
        Ok(true)
    }

    #[inline(never)]
    fn fetch_payload(&self, peer: usize, span: Span, bytes: usize) {
        let from = self.payload(peer, span, bytes);
        let polled = if self.is_beside(bytes) { POLLED_BYTES } else { 0 };
        for at in (polled..bytes).step_by(LINE).take(EXPECTED_LINES) {
            prefetch_for_read(from.wrapping_add(at));
        }
    }

    /// Asks for the place of a next payload as long as this one, in steps of `chunk_bytes`, if it does not stand beside the flag,
    /// so that its lines are this core's own when it comes. Not for the flag: a peer that polls it already would lose it twice.
    /// `idle`: nobody waits for what this rank does next.
    #[inline]
    pub(crate) fn expect_another(&mut self, bytes: usize, chunk_bytes: usize, idle: bool) {
        if !self.is_beside(bytes) {
            self.ask_for_next(bytes, chunk_bytes, idle);
        }
    }

    #[inline(never)]
    fn ask_for_next(&mut self, bytes: usize, chunk_bytes: usize, idle: bool) {
        if bytes <= self.annexes.bytes() {
            let next = self.annexes.at(self.rank, self.step);
            for line in 0..bytes.div_ceil(LINE).min(EXPECTED_LINES) {
                prefetch_for_write(next.wrapping_add(line * LINE));
            }
        } else if bytes <= if self.terms.own_cores { LONGEST_EXPECTED } else { LONGEST_EXPECTED_SHARED } {
            self.cells.ask_for_next(self.rank, bytes, chunk_bytes, idle);
        }
    }
}
