//! What a call that has failed leaves in a vector that safe code sees.
#![allow(unsafe_code)] // writes to the result

use crate::call::Parts;
use crate::{Call, Datatype};

impl Call<'_> {
    /// Does `work`, which carries this call out as rank `rank`'s. Unless that succeeds, what has come instead of the result is
    /// made of values: ranks that call something else send other bytes, and who has the vector as a slice must find no
    /// `bool` of such. Of the other datatypes all bits are values.
    ///
    /// # Errors
    /// Those of `work`.
    #[inline]
    pub fn carried_out<R, E>(
        &self,
        rank: usize,
        work: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let unfinished = Unfinished { call: self, rank };
        let done = work();
        if done.is_ok() {
            std::mem::forget(unfinished);
        }
        done
    }
}

/// A call that has failed, or was left by a panic, when this is dropped.
struct Unfinished<'c, 'a> {
    call: &'c Call<'a>,
    rank: usize,
}

impl Drop for Unfinished<'_, '_> {
    #[cold]
    fn drop(&mut self) {
        let Parts { datatype: Datatype::Bool, count, recv, .. } = **self.call else { return };
        if !self.call.receives(self.rank) || recv.is_null() {
            return;
        }
        for index in 0..count {
            // SAFETY: `recv` has `count` elements of one byte each, by the promise of whoever has made the call.
            let element = unsafe { recv.add(index) };
            // SAFETY: the same, and nobody works on them any more: the call has ended.
            if unsafe { element.read() } > 1 {
                // SAFETY: the same; the call was to write there.
                unsafe { element.write(1) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Call, Op, Operator};

    #[test]
    fn what_a_failed_call_has_left_is_made_of_values() {
        let sent = [0, 1, 2, 0xff];
        let receive = |rank: usize, outcome: std::result::Result<(), ()>| {
            let mut buffer = [false; 4];
            let place = buffer.as_mut_ptr().cast::<u8>();
            let call = Call::reduce_in_place(&mut buffer, Op::Builtin(Operator::Lor), 1);
            let work = || {
                // SAFETY: both have four bytes.
                unsafe { std::ptr::copy(sent.as_ptr(), place, 4) };
                outcome
            };
            let _ = call.carried_out(rank, work);
            // SAFETY: the same; bytes have no wrong values.
            unsafe { place.cast::<[u8; 4]>().read() }
        };
        assert_eq!(receive(1, Err(())), [0, 1, 1, 1]);
        assert_eq!(receive(0, Err(())), sent, "nothing is received here");
        assert_eq!(receive(1, Ok(())), sent, "a result is not looked at");
    }
}
