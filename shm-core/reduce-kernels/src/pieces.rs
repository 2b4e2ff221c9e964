//! A call cut into pieces, which are calls themselves: of a range of its elements, on its vectors or on scratch memory.
//!
//! Whoever combines collectives out of others, node by node and chunk by chunk, needs calls that stay under way in
//! several engines while the function that was called goes on. They cannot borrow the caller's vectors, so each piece
//! holds a share of a [`Keep`] instead, and a vector is its owner's again when no share is out:
//!
//! * [`Owned::reclaim`](crate::Owned::reclaim) gives a vector back only then; scratch memory is freed only then.
//! * [`Lender::lend`] returns the vectors that it was lent when it returns, so it *ends the process* if a share is out
//!   then. Who cuts pieces has to see that engines have completed or dropped them, also after an error or a panic.
//!
//! So memory that a piece names is there as long as the piece is, whatever safe code does with it. An engine drops a
//! call only when neither it nor a peer touches its vectors any more. Which pieces may be under way at the same time is
//! a question of right results alone: engines work on vectors by raw pointers, on types of which all bits are values.
#![allow(unsafe_code)] // makes pointers into vectors that somebody else answers for

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::rc::Rc;

use crate::Collective;
use crate::call::{Call, Parts, Whole};
use crate::{Datatype, Op, Operator, Signature, say};

/// What keeps the memory of a call's pieces: as long as somebody has a share of it, it is there.
#[derive(Debug, Default)]
pub struct Keep {
    scratch: Scratch,
    /// What keeps the whole call, if that is a piece itself.
    _of: Option<Rc<Keep>>,
}

/// Memory of one's own, aligned for every element and whole lines for every slot.
#[derive(Debug)]
struct Scratch {
    start: *mut u128,
    lines: usize,
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Scratch {
    fn new(bytes: usize) -> Self {
        let mut lines = ManuallyDrop::new(vec![0_u128; bytes.div_ceil(size_of::<u128>())].into_boxed_slice());
        Self { start: lines.as_mut_ptr(), lines: lines.len() }
    }

    fn bytes(&self) -> usize {
        self.lines * size_of::<u128>()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: these are the parts of a boxed slice that was taken apart in `new`, and dropped only here.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.start, self.lines)) });
    }
}

/// Where a piece's vector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// In what the call sends, which is written to only where the rank receives in place.
    Send,
    /// In what it receives, on a rank that receives.
    Recv,
    /// So many bytes behind the start of the scratch memory.
    Scratch(usize),
}

/// A call whose pieces can be had.
#[derive(Debug)]
pub struct Pieces {
    parts: Parts,
    signature: Signature,
    receives: bool,
    keep: Rc<Keep>,
}

impl Pieces {
    /// The pieces of a call by `rank`.
    #[must_use]
    pub fn of(call: Call<'static>, rank: usize) -> Self {
        let (signature, receives) = (call.signature(), has_result(&call, rank));
        let (parts, whole) = call.into_parts();
        let keep = Keep { scratch: Scratch::default(), _of: whole.map(|whole| whole.keep) };
        Self { parts, signature, receives, keep: Rc::new(keep) }
    }

    /// The same with at least so much scratch memory.
    #[must_use]
    pub fn with_scratch(self, bytes: usize) -> Self {
        if self.keep.scratch.bytes() >= bytes {
            return self;
        }
        let keep = Keep { scratch: Scratch::new(bytes), _of: Some(Rc::clone(&self.keep)) };
        Self { keep: Rc::new(keep), ..self }
    }

    /// The whole call.
    #[must_use]
    pub fn whole(&self) -> &Parts {
        &self.parts
    }

    /// The whole call again, as a piece.
    #[must_use]
    pub fn entire(&self) -> Call<'static> {
        Call::piece(self.parts.clone(), self.share())
    }

    /// A broadcast of a range at `place`.
    ///
    /// # Panics
    /// There is no such range, or no such place on this rank; or it would be written to, and the call only sends it.
    #[must_use]
    pub fn bcast(&self, place: Place, range: Range<usize>, root: usize) -> Call<'static> {
        let at = self.target(place, &range);
        self.piece(Collective::Bcast, None, range, root, at, at)
    }

    /// A reduction of a range to `root`, where it has a place.
    ///
    /// # Panics
    /// As [`bcast`](Self::bcast).
    #[must_use]
    pub fn reduce(&self, from: Place, to: Option<Place>, range: Range<usize>, root: usize) -> Call<'static> {
        let send = self.at(from, &range);
        let recv = to.map_or(std::ptr::null_mut(), |to| self.target(to, &range));
        self.piece(Collective::Reduce, self.parts.op.clone(), range, root, send, recv)
    }

    /// A reduction of a range for all.
    ///
    /// # Panics
    /// As [`bcast`](Self::bcast).
    #[must_use]
    pub fn allreduce(&self, from: Place, to: Place, range: Range<usize>) -> Call<'static> {
        let (send, recv) = (self.at(from, &range), self.target(to, &range));
        self.piece(Collective::Allreduce, self.parts.op.clone(), range, 0, send, recv)
    }

    /// A call without data that only synchronises: a barrier, for all, or a reduction or broadcast of one byte of scratch
    /// memory, which brings news to, or from, the root alone.
    ///
    /// # Panics
    /// There is no scratch memory.
    #[must_use]
    pub fn signal(&self, collective: Collective, root: usize) -> Call<'static> {
        if collective == Collective::Barrier {
            return self.piece(collective, None, 0..0, 0, std::ptr::null(), std::ptr::null_mut());
        }
        assert!(self.keep.scratch.bytes() > 0, "a signal needs a byte of scratch memory");
        let at = self.keep.scratch.start.cast::<u8>();
        let op = (collective != Collective::Bcast).then_some(Op::Builtin(Operator::Bor));
        let parts = Parts { send: at, recv: at, ..Parts::new(collective, Datatype::Byte, op, 1, root) };
        Call::piece(parts, self.share())
    }

    fn piece(
        &self,
        collective: Collective,
        op: Option<Op>,
        range: Range<usize>,
        root: usize,
        send: *const u8,
        recv: *mut u8,
    ) -> Call<'static> {
        let parts = Parts { send, recv, ..Parts::new(collective, self.parts.datatype, op, range.len(), root) };
        Call::piece(parts, self.share())
    }

    fn share(&self) -> Whole {
        Whole { signature: self.signature, keep: Rc::clone(&self.keep) }
    }

    /// Where a range of elements is that may be written to: what the call sends is borrowed shared.
    fn target(&self, place: Place, range: &Range<usize>) -> *mut u8 {
        let is_lent_to_read =
            place == Place::Send && !(self.receives && self.parts.send == self.parts.recv.cast_const());
        assert!(!is_lent_to_read, "a piece that is written to what this rank only sends");
        self.at(place, range)
    }

    /// Where a range of elements is.
    fn at(&self, place: Place, range: &Range<usize>) -> *mut u8 {
        let Parts { count, datatype, send, recv, .. } = self.parts;
        assert!(range.start <= range.end && range.end <= count, "a piece {range:?} of {count} elements");
        match place {
            Place::Send => send.cast_mut().wrapping_add(range.start * datatype.size()),
            Place::Recv => {
                assert!(self.receives, "a piece of what this rank does not receive");
                recv.wrapping_add(range.start * datatype.size())
            }
            Place::Scratch(at) => {
                let (bytes, has) = (range.len() * datatype.size(), self.keep.scratch.bytes());
                assert!(at <= has && bytes <= has - at, "{bytes} bytes at {at} in {has} bytes of scratch memory");
                self.keep.scratch.start.cast::<u8>().wrapping_add(at)
            }
        }
    }

    pub(crate) fn kept_by(call: Call<'static>, rank: usize, keep: &Rc<Keep>) -> Self {
        let signature = call.signature();
        let (parts, _) = call.into_parts();
        Self::of(Call::piece(parts, Whole { signature, keep: Rc::clone(keep) }), rank)
    }
}

/// True if `rank` receives, and the call says where. One of a root that does not is refused whole (`Call::check`), but
/// its pieces may be asked for before.
fn has_result(call: &Call<'_>, rank: usize) -> bool {
    call.receives(rank) && (!call.recv.is_null() || call.count == 0)
}

/// Cuts calls that only last as long as a function; to be kept for the next one, as it keeps scratch memory.
#[derive(Debug, Default)]
pub struct Lender {
    keep: Rc<Keep>,
}

impl Lender {
    /// Does `work` with the pieces of a call by `rank`, with at least so much scratch memory.
    ///
    /// When it returns, or panics, no piece may be held any more.
    ///
    /// # Aborts
    /// The process, if one is: then an engine may still use the call's vectors.
    pub fn lend<R>(
        &mut self,
        call: &Call<'_>,
        rank: usize,
        scratch_bytes: usize,
        work: impl FnOnce(&Pieces) -> R,
    ) -> R {
        if self.keep.scratch.bytes() < scratch_bytes {
            self.keep = Rc::new(Keep { scratch: Scratch::new(scratch_bytes), _of: None });
        }
        let (signature, receives) = (call.signature(), has_result(call, rank));
        let (parts, keep) = (Parts::clone(call), Rc::clone(&self.keep));
        let pieces = OnlyHere(Pieces { parts, signature, receives, keep });
        work(&pieces.0)
    }
}

/// Pieces that must have come back when it is dropped.
struct OnlyHere(Pieces);

impl Drop for OnlyHere {
    fn drop(&mut self) {
        // The lender's share and this one.
        if Rc::strong_count(&self.0.keep) > 2 {
            say("han: a call ended while parts of it were under way: nobody could say who writes to its vectors");
            std::process::abort();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Owned, OwnedCall, Ticket};

    #[test]
    fn pieces_name_ranges_and_say_what_was_called() {
        let (send, mut recv) = ([1_i32, 2, 3, 4], [0_i32; 4]);
        let (sends, receives) = (send.as_ptr(), recv.as_mut_ptr());
        let call = Call::reduce(&send, &mut recv, Operator::Sum.into(), 1).unwrap();
        let whole = call.signature();
        Lender::default().lend(&call, 1, 64, |pieces| {
            let piece = pieces.reduce(Place::Send, Some(Place::Recv), 1..3, 0);
            assert_eq!((piece.count, piece.root, piece.signature()), (2, 0, whole));
            assert_eq!(piece.send.cast(), sends.wrapping_add(1));
            assert_eq!(piece.recv.cast(), receives.wrapping_add(1));
            let scratch = pieces.allreduce(Place::Scratch(16), Place::Scratch(16), 0..4);
            assert!(scratch.is_in_place() && scratch.send.addr().is_multiple_of(16));
            assert_eq!(pieces.signal(Collective::Reduce, 2).bytes(), 1);
        });
    }

    #[test]
    #[should_panic(expected = "of 4 elements")]
    fn no_piece_lies_outside() {
        let mut buffer = [0_u8; 4];
        Lender::default().lend(&Call::bcast(&mut buffer, 0), 0, 0, |pieces| drop(pieces.bcast(Place::Recv, 3..5, 0)));
    }

    #[test]
    #[should_panic(expected = "does not receive")]
    fn no_piece_is_written_where_nothing_is_received() {
        let call = Call::reduce(&[1_u8; 4], &mut [], Operator::Sum.into(), 1).unwrap();
        Lender::default().lend(&call, 0, 0, |pieces| drop(pieces.reduce(Place::Send, Some(Place::Recv), 0..4, 0)));
    }

    #[test]
    #[should_panic(expected = "does not receive")]
    fn no_piece_is_written_where_a_root_has_no_vector() {
        let call = Call::reduce(&[1_u8; 4], &mut [], Operator::Sum.into(), 0).unwrap();
        Lender::default().lend(&call, 0, 0, |pieces| drop(pieces.reduce(Place::Send, Some(Place::Recv), 1..3, 0)));
    }

    /// Makes a piece of an allreduce of separate vectors.
    fn of_separate_vectors(piece: impl FnOnce(&Pieces) -> Call<'static>) {
        let (send, mut recv) = ([1_u8; 4], [0_u8; 4]);
        let call = Call::allreduce(&send, &mut recv, Operator::Sum.into()).unwrap();
        Lender::default().lend(&call, 0, 64, |pieces| drop(piece(pieces)));
    }

    #[test]
    #[should_panic(expected = "only sends")]
    fn no_allreduce_is_written_to_what_is_sent() {
        of_separate_vectors(|pieces| pieces.allreduce(Place::Scratch(0), Place::Send, 0..4));
    }

    #[test]
    #[should_panic(expected = "only sends")]
    fn no_reduction_is_written_to_what_is_sent() {
        of_separate_vectors(|pieces| pieces.reduce(Place::Recv, Some(Place::Send), 0..4, 0));
    }

    #[test]
    #[should_panic(expected = "only sends")]
    fn no_bcast_is_written_to_what_is_sent() {
        of_separate_vectors(|pieces| pieces.bcast(Place::Send, 0..4, 0));
    }

    #[test]
    #[should_panic(expected = "only sends")]
    fn who_does_not_receive_in_place_only_sends() {
        let mut buffer = [1_u8; 4];
        let call = Call::reduce_in_place(&mut buffer, Operator::Sum.into(), 1);
        Lender::default().lend(&call, 0, 0, |pieces| drop(pieces.bcast(Place::Send, 0..4, 0)));
    }

    #[test]
    fn in_place_what_is_sent_is_what_is_received() {
        let mut buffer = [1_u8; 4];
        let call = Call::allreduce_in_place(&mut buffer, Operator::Sum.into());
        Lender::default().lend(&call, 0, 0, |pieces| {
            let piece = pieces.allreduce(Place::Send, Place::Send, 1..4);
            assert!(piece.is_in_place() && piece.recv == call.recv.wrapping_add(1));
        });
    }

    #[test]
    fn a_vector_comes_back_with_its_last_piece() {
        let mut out = None;
        let owned = Owned::begin_in_pieces(OwnedCall::Bcast(0), vec![7_u16; 5], 0, &Rc::default(), |pieces| {
            let pieces = pieces.with_scratch(100);
            out = Some(pieces.bcast(Place::Recv, 0..5, 0));
            Ok::<_, ()>(Ticket(1))
        });
        let owned = owned.unwrap().reclaim().unwrap_err();
        drop(out);
        assert_eq!(owned.reclaim().unwrap(), [7; 5]);
    }

    #[test]
    fn a_vector_outlives_the_pieces_of_an_operation_that_could_not_begin() {
        let mut out = None;
        let begun = Owned::begin_in_pieces(OwnedCall::Bcast(0), vec![7_u8; 5], 0, &Rc::default(), |pieces| {
            out = Some(pieces.bcast(Place::Recv, 0..5, 0));
            Err("no")
        });
        assert_eq!(begun.err(), Some("no"));
        let piece = out.unwrap();
        assert_eq!(piece.count, 5);
        let vector = piece.recv;
        drop(piece);
        // SAFETY: this is the vector of above, which is leaked since a piece was held, and no piece is any more.
        assert_eq!(unsafe { Vec::from_raw_parts(vector, 5, 5) }, [7; 5]);
    }
}
