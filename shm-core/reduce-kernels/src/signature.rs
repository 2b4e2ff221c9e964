//! What every rank must agree on of a call, in two words.

use std::fmt;

use crate::call::Parts;
use crate::{Collective, Purpose};
use crate::{Datatype, Op, Operator};

/// What every rank must agree on, as two words for shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Collective (8 bits), operator (8), purpose (3), datatype (13), root (32).
    pub packed: u64,
    /// Elements of a rank's vector.
    pub count: u64,
}

/// Where in the packed word its parts begin, behind the collective.
const OP_AT: u32 = 8;
const PURPOSE_AT: u32 = 16;
const DATATYPE_AT: u32 = 19;
const ROOT_AT: u32 = 32;

const _: () = assert!(Datatype::MOST_CODE < 1 << (ROOT_AT - DATATYPE_AT));

impl Signature {
    /// What `call` says.
    #[inline]
    pub(crate) fn of(call: &Parts) -> Self {
        let op = call.op.as_ref().map_or(0, op_code);
        let packed = u64::from(call.collective as u8)
            | u64::from(op) << OP_AT
            | u64::from(call.purpose as u8) << PURPOSE_AT
            | u64::from(call.datatype.code()) << DATATYPE_AT
            | (call.root as u64) << ROOT_AT;
        Self { packed, count: call.count as u64 }
    }

    /// The collective and its root, if it has one.
    #[must_use]
    #[inline]
    pub fn rooted(self) -> Option<(Collective, usize)> {
        let [code, ..] = self.packed.to_le_bytes();
        let collective = Collective::from_code(code)?;
        collective.has_root().then_some((collective, (self.packed >> ROOT_AT) as usize))
    }

    /// So many bits of the packed word from `at` on.
    const fn part(self, at: u32, bits: u32) -> u16 {
        #[allow(clippy::cast_possible_truncation)] // no part but the root has more than 16 bits
        {
            (self.packed >> at & ((1 << bits) - 1)) as u16
        }
    }
}

const USER_OP: u8 = 200;

/// Operators as a byte: user operators cannot be told apart across processes, only by whether they commute.
#[inline]
fn op_code(op: &Op) -> u8 {
    match op {
        Op::Builtin(operator) => operator.code() + 1,
        Op::User(user) => USER_OP + u8::from(user.is_commutative()),
    }
}

impl fmt::Display for Signature {
    /// For instance `bcast(count 4, f64, root 2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [collective, op, ..] = self.packed.to_le_bytes();
        let Some(collective) = Collective::from_code(collective) else { return f.write_str("nothing") };
        let purpose = self.part(PURPOSE_AT, DATATYPE_AT - PURPOSE_AT);
        for (special, name) in [(Purpose::Finalize, "finalize()"), (Purpose::Dup, "dup()"), (Purpose::Split, "split()")]
        {
            if purpose == special as u16 {
                return f.write_str(name);
            }
        }
        if collective == Collective::Barrier {
            return f.write_str("barrier()");
        }
        write!(f, "{collective}(count {}, ", self.count)?;
        match Datatype::from_code(self.part(DATATYPE_AT, ROOT_AT - DATATYPE_AT)) {
            Some(datatype) => write!(f, "{datatype}")?,
            None => f.write_str("unknown datatype")?,
        }
        match op {
            0 => {}
            USER_OP => f.write_str(", user operator that does not commute")?,
            code if code > USER_OP => f.write_str(", user operator")?,
            code => match Operator::from_code(code - 1) {
                Some(op) => write!(f, ", {}", op.name())?,
                None => f.write_str(", unknown operator")?,
            },
        }
        if collective == Collective::Allreduce {
            f.write_str(")")
        } else {
            write!(f, ", root {})", self.packed >> ROOT_AT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UserOperator;
    use crate::call::Call;
    use crate::call::tests::Record;

    #[test]
    fn signatures_read_like_calls() {
        let mut buffer = [0.0f64; 4];
        assert_eq!(Call::bcast(&mut buffer, 2).signature().to_string(), "bcast(count 4, f64, root 2)");
        let call = Call::allreduce_in_place(&mut buffer, Op::Builtin(Operator::Sum));
        assert_eq!(call.signature().to_string(), "allreduce(count 4, f64, sum)");
        assert_eq!(Call::barrier().signature().to_string(), "barrier()");
        assert_eq!(Call::FINALIZE.signature().to_string(), "finalize()");
        assert_ne!(Call::FINALIZE.signature(), Call::BARRIER.signature());
        let mut made_for =
            |purpose| Call::allreduce_in_place(&mut buffer, Op::Builtin(Operator::Sum)).made_for(purpose).signature();
        let [data, dup, split] = [Purpose::Data, Purpose::Dup, Purpose::Split].map(&mut made_for);
        assert_eq!([dup, split].map(|call| call.to_string()), ["dup()", "split()"]);
        assert!(dup != split && split != data);
    }

    #[test]
    fn signatures_of_records_tell_their_sizes() {
        let op = || Op::User(UserOperator::elementwise(false, |left: Record<24>, _| left));
        let call = Call::allreduce_in_place(&mut [Record([0; 24]); 4], op()).signature();
        assert_eq!(call.to_string(), "allreduce(count 4, record of 24 bytes, user operator that does not commute)");
        let call = Call::reduce_in_place(&mut [Record([0; 1024]); 2], op(), 3).signature();
        assert_eq!(
            call.to_string(),
            "reduce(count 2, record of 1024 bytes, user operator that does not commute, root 3)"
        );
        assert_eq!(call.rooted(), Some((Collective::Reduce, 3)));
        let bcast = |call: Call<'_>| call.signature();
        assert_ne!(bcast(Call::bcast(&mut [Record([0; 23])], 0)), bcast(Call::bcast(&mut [Record([0; 24])], 0)));
    }
}
