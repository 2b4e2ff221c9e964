//! What a user's operator works on where peers' vectors are reached: copies. It may take as long as it likes, and the job may
//! end meanwhile, after which these vectors are their owners' again. So while it runs, a rank works on no memory of its peers;
//! before it brings them what the operator has made, it looks whether the job has ended.
#![allow(unsafe_code)] // copies peers' vectors

use crate::coll::operands::Operands;
use crate::copy::Access;
use crate::copy::cico::{LINE, Line, copy};
use reduce_kernels::{Call, Op};

/// True if `call` is reduced by a user's operator.
#[inline]
pub(crate) fn is_users(call: &Call<'_>) -> bool {
    matches!(call.op, Some(Op::User(_)))
}

/// All ranks' parts of a vector, none of which is in a peer's own memory.
#[derive(Debug)]
pub(crate) struct Apart {
    from: Vec<*const u8>,
    /// What some of them point into.
    _copies: Vec<Line>,
}

impl Apart {
    /// The parts of `bytes` that [`Operands::sources`] has told, with copies in the place of those that peers have mapped.
    ///
    /// # Safety
    /// They are valid for reading.
    pub(crate) unsafe fn of(operands: &Operands, from: &[*const u8], bytes: usize) -> Self {
        let is_mapped = |peer: usize| matches!(operands.send(peer), Some(Access::Mapped(_)));
        let lines = bytes.div_ceil(LINE);
        let mut from = from.to_vec();
        let mut copies: Vec<Line> = vec![Line::ZERO; lines * (0..from.len()).filter(|&peer| is_mapped(peer)).count()];
        let mut free = copies.as_mut_ptr().cast::<u8>();
        for (_, part) in from.iter_mut().enumerate().filter(|&(peer, _)| is_mapped(peer)) {
            // SAFETY: the caller's promise; there are as many lines for each of these.
            unsafe { copy(free, *part, bytes) };
            *part = free;
            free = free.wrapping_add(lines * LINE);
        }
        Self { from, _copies: copies }
    }

    /// The parts, by rank.
    pub(crate) fn sources(&self) -> &[*const u8] {
        &self.from
    }
}
