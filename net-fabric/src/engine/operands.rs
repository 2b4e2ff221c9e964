//! What an operation works on: the caller's memory, the operation's own, and how two vectors become one.
#![allow(unsafe_code)] // Works on the caller's memory.

use reduce_kernels::{Datatype, EndOnPanic, Op, ThreeFn, UserOperator, kernel};

use super::scratch::Block;
use crate::schedule::{Buffer, Span};

/// How vectors are reduced.
#[derive(Debug, Clone)]
pub struct Reduction {
    /// The operator.
    pub op: Op,
    /// The elements.
    pub datatype: Datatype,
}

/// The vectors of one rank, and what is applied to them.
#[derive(Debug, Clone)]
pub struct Operands {
    pub(super) vectors: Vectors,
    pub(super) reduction: Option<Reduction>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Vectors {
    Real { input: *const u8, input_bytes: usize, output: *mut u8, output_bytes: usize },
    Null,
}

impl Operands {
    /// Vectors in memory; both may have no bytes. What a rank works on in place is its output.
    #[must_use]
    pub fn new(input: *const u8, input_bytes: usize, output: *mut u8, output_bytes: usize) -> Self {
        Self { vectors: Vectors::Real { input, input_bytes, output, output_bytes }, reduction: None }
    }

    /// No memory: the messages are empty shells of the right length, and the transport, which must be one that
    /// moves no data, is told how much would have been reduced and copied.
    #[must_use]
    pub fn null() -> Self {
        Self { vectors: Vectors::Null, reduction: None }
    }

    /// With an operator for the schedule's reductions.
    #[must_use]
    pub fn reduced_by(self, op: impl Into<Op>, datatype: Datatype) -> Self {
        Self { reduction: Some(Reduction { op: op.into(), datatype }), ..self }
    }

    /// The operands as steps use them; `scratch` outlives what is returned.
    pub(super) fn resolve(&self, scratch: &mut Block) -> Memory {
        let bases = match self.vectors {
            Vectors::Real { input, output, .. } => Some([input.cast_mut(), output, scratch.start()]),
            Vectors::Null => None,
        };
        let reducer = match &self.reduction {
            Some(Reduction { op: Op::Builtin(operator), datatype }) => kernel(*datatype, *operator)
                .map(|kernel| Reducer::Kernel { three: kernel.three, element_bytes: datatype.size() }),
            Some(Reduction { op: Op::User(user), datatype }) => {
                Some(Reducer::User { user: user.clone(), datatype: *datatype })
            }
            None => None,
        };
        Memory { bases, reducer }
    }
}

#[derive(Debug)]
enum Reducer {
    Kernel { three: ThreeFn, element_bytes: usize },
    User { user: UserOperator, datatype: Datatype },
}

/// Where an operation's buffers are. Spans are those of a schedule that was checked with the operands.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Input, output, scratch; none where memory is null.
    bases: Option<[*mut u8; 3]>,
    reducer: Option<Reducer>,
}

impl Memory {
    /// Where a span begins; null where memory is.
    #[inline]
    pub(super) fn at(&self, span: Span) -> *mut u8 {
        let index = match span.buffer {
            Buffer::Input => 0,
            Buffer::Output => 1,
            Buffer::Scratch => 2,
        };
        self.bases.map_or(std::ptr::null_mut(), |bases| bases[index].wrapping_add(span.start))
    }

    /// Copies bytes.
    ///
    /// # Safety
    /// The buffers are valid, nobody else writes to `from` or uses `into`, and the two do not overlap.
    pub(super) unsafe fn copy(&self, from: Span, into: Span) {
        if self.bases.is_some() && from.bytes > 0 {
            // SAFETY: the caller's promise; the spans lie in the buffers because they were checked.
            unsafe { self.at(into).copy_from_nonoverlapping(self.at(from), from.bytes) };
        }
    }

    /// `into = left op right`. `spare` is any memory, kept for the next time.
    ///
    /// # Safety
    /// The buffers are valid, nobody else writes to the operands or uses `into`, which is one of the operands or
    /// overlaps neither.
    pub(super) unsafe fn reduce(&self, left: Span, right: Span, into: Span, spare: &mut Vec<u64>) {
        if self.bases.is_none() || into.bytes == 0 {
            return;
        }
        let (left, right, to) = (self.at(left), self.at(right), self.at(into));
        match &self.reducer {
            Some(Reducer::Kernel { three, element_bytes }) => {
                // SAFETY: the caller's promise is the kernel's condition.
                unsafe { three(to, left, right, into.bytes / element_bytes) };
            }
            // SAFETY: the same promise.
            Some(Reducer::User { user, datatype }) => unsafe {
                reduce_by_user(user, *datatype, [left, right, to], into.bytes, spare);
            },
            None => unreachable!("a schedule that reduces was checked to have an operator"),
        }
    }
}

/// # Safety
/// As for [`Memory::reduce`]; `[left, right, to]` are valid for `bytes`.
#[cold]
unsafe fn reduce_by_user(
    user: &UserOperator,
    datatype: Datatype,
    [left, right, to]: [*mut u8; 3],
    bytes: usize,
    spare: &mut Vec<u64>,
) {
    // A user's function writes over its operand on the right, and its operands must be apart.
    let over_left = to == left;
    let target = if over_left {
        spare.resize(spare.len().max(bytes.div_ceil(8)), 0);
        spare.as_mut_ptr().cast()
    } else {
        to
    };
    if target != right {
        // SAFETY: both are valid for `bytes`, and they are apart: `to` is, or `spare` is.
        unsafe { target.copy_from_nonoverlapping(right, bytes) };
    }
    let guard = EndOnPanic;
    // SAFETY: valid for so many elements, and apart.
    unsafe { user.apply(left, target, bytes / datatype.size(), datatype) };
    std::mem::forget(guard);
    if over_left {
        // SAFETY: as above.
        unsafe { to.copy_from_nonoverlapping(target, bytes) };
    }
}
