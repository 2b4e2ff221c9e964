//! Where each rank's vectors lie in one operation: in its cells, or in memory of its own that peers reach.
//!
//! Every rank decides for itself and says so beside the first flag of the operation, so nothing has to be
//! agreed upon and nobody waits for the news. A rank whose vectors are reached where they are copies
//! nothing into cells (SOLO, dissertation, section 5.2.2), and leaves only when all who read or write
//! there have gone on.
#![allow(unsafe_code)] // reads peers' memory

use crate::copy::cico::{LINE, Line, copy};
use crate::copy::{Access, Method, Vectors};
use crate::error::Result;
use crate::job::AtWork;
use crate::memory::Lent;
use crate::ring::{Ring, Span};
use crate::settings::{Settings, Single};
use reduce_kernels::Call;
use smallvec::SmallVec;

/// One rank's vectors, as another one reaches them.
#[derive(Debug, Clone, Copy)]
struct Reached {
    send: Access,
    /// `None` where it receives nothing.
    recv: Option<Access>,
    in_place: bool,
    /// Both are meant to be mapped by all, as their owner says. Whether this rank could do so is its own affair.
    is_for_mapping: bool,
}

/// All ranks' vectors in one operation.
#[derive(Debug)]
pub(crate) struct Operands {
    /// This rank's own are reached where they are.
    own: bool,
    /// So they are, and all peers map them: what this rank has told of it.
    own_are_mapped: bool,
    /// As long as the kernel copies this rank's own, from when they are told of.
    lent: Option<Lent>,
    /// By rank; `None` for what goes through cells. Empty as long as all do.
    reached: SmallVec<[Option<Reached>; 2]>,
    /// One is not `None`.
    any: bool,
    /// No rank, as far as known, does anything else before the operation has completed.
    all_stay: bool,
    /// What the kernel has copied, for reductions.
    fetched: Vec<Line>,
}

/// What stands beside a rank's first flag: a word that is not 0 if its vectors can be reached, and if so is the first of
/// [`Vectors`]'.
const IN_CELLS: u64 = 0;
const REACHABLE: u8 = 1;
/// Beside `REACHABLE`: the rank may do something else meanwhile.
const WANDERS: u8 = 2;

const _: () = assert!(Vectors::WORDS * size_of::<u64>() <= crate::segment::layout::INLINE_BYTES);

impl Operands {
    /// Decides where this rank's vectors lie. `may_reach`: peers can work on them where they are without
    /// seeing one overwritten too early.
    pub(crate) fn new(ring: &Ring, call: &Call<'_>, may_reach: bool) -> Self {
        Self::own(may_reach && can_be_reached(ring, call), true)
    }

    /// All ranks' vectors are reached where they are. `stays`: this rank does nothing else before the operation has
    /// completed.
    pub(crate) fn all_lent(stays: bool) -> Self {
        Self::own(true, stays)
    }

    fn own(own: bool, all_stay: bool) -> Self {
        let (reached, fetched) = (SmallVec::new(), Vec::new());
        Self { own, own_are_mapped: false, lent: None, reached, any: false, all_stay, fetched }
    }

    /// True if no rank that has told does anything else before the operation has completed.
    pub(crate) fn all_stay(&self) -> bool {
        self.all_stay
    }

    /// True if peers reach this rank's vectors where they are.
    pub(crate) fn own_are_reached(&self) -> bool {
        self.own
    }

    /// Puts the news beside this rank's flag of `span`, the first of the operation. What peers conclude from it this rank
    /// concludes from the same words, as vectors may have been registered since the operation began.
    pub(crate) fn tell(&mut self, ring: &Ring, call: &Call<'_>, span: Span) {
        let (mut words, mut used) = ([IN_CELLS; Vectors::WORDS], 1);
        if self.own {
            let vectors = described(ring, call);
            self.own_are_mapped = all_map(ring, &vectors);
            self.lent = (!self.own_are_mapped).then(|| ring.job().lend(call, ring.rank()));
            (words, used) = vectors.to_words(if self.all_stay { REACHABLE } else { REACHABLE | WANDERS });
        }
        // SAFETY: the caller may write to the span and has not published it; the words fit beside a flag.
        unsafe { ring.put_inline(span, words.as_ptr().cast(), used * size_of::<u64>()) };
    }

    /// Takes the news of `rank`, which has published `span`, its first of the operation.
    ///
    /// # Errors
    /// Its memory cannot be reached after all.
    pub(crate) fn learn(&mut self, ring: &Ring, rank: usize, span: Span) -> Result<()> {
        let mut words = [IN_CELLS; Vectors::WORDS];
        let from = ring.inline(rank, span);
        // SAFETY: `rank` has published at least one word there, and writes no more before this rank leaves.
        unsafe { copy(words.as_mut_ptr().cast(), from, size_of::<u64>()) };
        if words[0] == IN_CELLS {
            return Ok(());
        }
        // SAFETY: as above, for the words that the first one tells of.
        unsafe { copy(words.as_mut_ptr().cast(), from, Vectors::used(words[0]) * size_of::<u64>()) };
        let vectors = Vectors::from_words(&words);
        let (reach, world) = (ring.job().reach(), ring.world()[rank]);
        let send = reach.resolve(world, &vectors.send)?;
        let in_place = vectors.recv == Some(vectors.send);
        let recv = match vectors.recv {
            Some(_) if in_place => Some(send),
            Some(recv) => Some(reach.resolve(world, &recv)?),
            None => None,
        };
        let reached = Reached { send, recv, in_place, is_for_mapping: all_map(ring, &vectors) };
        if self.reached.is_empty() {
            self.reached.resize(ring.size(), None);
        }
        self.reached[rank] = Some(reached);
        self.any = true;
        self.all_stay &= words[0] & u64::from(WANDERS) == 0;
        Ok(())
    }

    /// Takes the news of all peers, who have published `span`, their first of the operation.
    ///
    /// # Errors
    /// As [`learn`](Self::learn).
    pub(crate) fn learn_all(&mut self, ring: &Ring, span: Span) -> Result<()> {
        ring.peers().iter().try_for_each(|&peer| self.learn(ring, peer, span))
    }

    /// Lets this rank work on the vectors that are reached where they are, if there are any, as long as the
    /// result lives.
    ///
    /// # Errors
    /// The job has ended, and so their owners may have them back.
    #[inline]
    pub(crate) fn reach_out(&self, ring: &Ring) -> Result<Option<AtWork>> {
        if self.any { ring.reach_out().map(Some) } else { Ok(None) }
    }

    /// True if the vectors of all ranks are reached where they are; known once all have told.
    pub(crate) fn all_are_reached(&self, ring: &Ring) -> bool {
        self.own && ring.peers().iter().all(|&peer| self.send(peer).is_some())
    }

    /// True if the vectors of all ranks are meant to be mapped by all; known once all have told. All ranks say the same,
    /// also one that has found no room for a mapping.
    pub(crate) fn all_are_mapped(&self, ring: &Ring) -> bool {
        (0..ring.size()).all(|rank| self.are_mapped(ring, rank))
    }

    /// True if the vectors of `rank` are, which has told.
    pub(crate) fn are_mapped(&self, ring: &Ring, rank: usize) -> bool {
        let is_for_mapping = || self.of(rank).is_some_and(|reached| reached.is_for_mapping);
        if rank == ring.rank() { self.own_are_mapped } else { is_for_mapping() }
    }

    /// True if a rank whose vectors are reached receives where it sends; known once all have told.
    pub(crate) fn any_is_lent_in_place(&self, ring: &Ring, call: &Call<'_>) -> bool {
        self.own && call.is_in_place() || ring.peers().iter().any(|&peer| self.is_lent_in_place(peer))
    }

    /// True if `peer`'s vectors are reached, and it receives where it sends.
    pub(crate) fn is_lent_in_place(&self, peer: usize) -> bool {
        self.of(peer).is_some_and(|reached| reached.in_place)
    }

    fn of(&self, rank: usize) -> Option<Reached> {
        self.reached.get(rank).copied().flatten()
    }

    /// Where `rank`'s vector to send is, if not in cells.
    pub(crate) fn send(&self, rank: usize) -> Option<Access> {
        self.of(rank).map(|reached| reached.send)
    }

    /// Where `rank`'s vector to receive is mapped here, if it is.
    pub(crate) fn mapped_recv(&self, rank: usize) -> Option<*mut u8> {
        match self.recv(rank) {
            Some(Access::Mapped(recv)) => Some(recv),
            Some(Access::Kernel(_)) | None => None,
        }
    }

    /// Where `rank`'s vector to receive is, if it has one that is reached.
    pub(crate) fn recv(&self, rank: usize) -> Option<Access> {
        self.of(rank)?.recv
    }

    /// Every rank's part of `bytes` at `at` in its vector to send, in rank order, with `own` for this
    /// rank's. In cells it stands `in_span` after the start of `span`.
    ///
    /// # Errors
    /// The kernel cannot copy a peer's part.
    pub(crate) fn sources<'r>(
        &mut self,
        ring: &'r mut Ring,
        span: Span,
        in_span: usize,
        own: *const u8,
        at: usize,
        bytes: usize,
    ) -> Result<&'r [*const u8]> {
        if !self.any {
            return Ok(ring.cell_sources(span, in_span, own));
        }
        let rank = ring.rank();
        let kernels = (0..ring.size()).filter(|&peer| matches!(self.send(peer), Some(Access::Kernel(_)))).count();
        let lines = bytes.div_ceil(LINE);
        let stride = lines * LINE;
        self.fetched.resize(kernels * lines, Line::ZERO);
        let mut free = self.fetched.as_mut_ptr().cast::<u8>();
        for peer in 0..ring.size() {
            if let Some(Access::Kernel(buffer)) = self.send(peer) {
                // SAFETY: `fetched` has a stride for every one of these.
                unsafe { ring.job().reach().read(buffer, at, free, bytes) }?;
                free = free.wrapping_add(stride);
            }
        }
        let mut fetched = self.fetched.as_ptr().cast::<u8>();
        Ok(ring.sources(|ring, peer| {
            if peer == rank {
                return own;
            }
            match self.send(peer) {
                None => ring.cells(peer, span).wrapping_add(in_span).cast_const(),
                Some(Access::Mapped(send)) => send.wrapping_add(at).cast_const(),
                Some(Access::Kernel(_)) => {
                    let this = fetched;
                    fetched = fetched.wrapping_add(stride);
                    this
                }
            }
        }))
    }
}

/// True if this rank's vectors of `call` are long enough and lie where the settings want them reached.
pub(crate) fn can_be_reached(ring: &Ring, call: &Call<'_>) -> bool {
    let reach = ring.job().reach();
    let has = |method| reach.methods().has(method);
    match Lending::of(ring.job().settings(), ring.terms().lent_from(call.collective), has, call.bytes()) {
        Lending::Wherever => true,
        Lending::IfMapped => are_mapped(ring, call),
        _ => false,
    }
}

/// True if peers map this rank's vectors of `call`.
pub(crate) fn are_mapped(ring: &Ring, call: &Call<'_>) -> bool {
    let reach = ring.job().reach();
    let is_mapped = |start| reach.everywhere(&reach.describe(start, call.bytes()));
    is_mapped(call.send) && (call.is_in_place() || !call.receives(ring.rank()) || is_mapped(call.recv))
}

/// Where this rank's vectors of `call` are; what it receives to only if it does.
#[inline]
fn described(ring: &Ring, call: &Call<'_>) -> Vectors {
    let describe = |start| ring.job().reach().describe(start, call.bytes());
    Vectors { send: describe(call.send), recv: call.receives(ring.rank()).then(|| describe(call.recv)) }
}

/// True if every rank would map a rank's vectors; all ranks say the same of them.
#[inline]
fn all_map(ring: &Ring, vectors: &Vectors) -> bool {
    let reach = ring.job().reach();
    reach.everywhere(&vectors.send) && vectors.recv.is_none_or(|recv| reach.everywhere(&recv))
}

/// Whether vectors of a length are worked on where they are; what has decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lending {
    /// No, they are shorter than those for which it pays.
    TooShort,
    /// No, by the setting.
    Never,
    /// No, the method that the setting asks for is off.
    MethodOff(Method),
    /// Yes, by the kernel if they are not mapped.
    Wherever,
    /// If they lie in memory that peers map.
    IfMapped,
}

impl Lending {
    /// `from`: what the table or the setting says.
    pub(crate) fn of(settings: &Settings, from: usize, has: impl Fn(Method) -> bool, bytes: usize) -> Self {
        if bytes < from {
            return Self::TooShort;
        }
        match settings.single_copy {
            Single::Never => Self::Never,
            Single::ByKernel if has(Method::Cma) => Self::Wherever,
            Single::ByKernel => Self::MethodOff(Method::Cma),
            Single::Auto | Single::IfShared if has(Method::Shared) => Self::IfMapped,
            Single::Auto | Single::IfShared => Self::MethodOff(Method::Shared),
        }
    }

    /// Whether ranks may work on all vectors where they are.
    pub(crate) fn may_reach(settings: &Settings) -> bool {
        matches!(settings.single_copy, Single::Auto | Single::ByKernel)
    }

    /// Whether vectors may be mapped at all, where `shared` says that they can be.
    pub(crate) fn may_map(settings: &Settings, shared: bool) -> bool {
        shared && settings.single_copy != Single::Never
    }
}
