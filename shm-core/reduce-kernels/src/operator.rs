//! The built-in operators, where they are defined, and what a collective takes as its operator.

use crate::datatype::{Class, Datatype};
use crate::user::UserOperator;
use std::fmt;

/// A built-in reduction operator. All are associative up to rounding and commutative.
///
/// The discriminants cross process and language boundaries; they are never renumbered. In memory they are as
/// long as a pointer, so that an [`Op`] is handed on in two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum Operator {
    /// Sum; integers wrap.
    Sum = 0,
    /// Product; integers wrap.
    Prod = 1,
    /// The lesser: `if b < a { b } else { a }`.
    Min = 2,
    /// The greater: `if b > a { b } else { a }`.
    Max = 3,
    /// Both are non-zero, as 0 or 1.
    Land = 4,
    /// At least one is non-zero, as 0 or 1.
    Lor = 5,
    /// Exactly one is non-zero, as 0 or 1.
    Lxor = 6,
    /// And, bit by bit.
    Band = 7,
    /// Or, bit by bit.
    Bor = 8,
    /// Exclusive or, bit by bit.
    Bxor = 9,
    /// The pair with the least value; among equals, the one with the least index.
    Minloc = 10,
    /// The pair with the greatest value; among equals, the one with the least index.
    Maxloc = 11,
}

impl Operator {
    /// Every operator, in the order of the codes.
    pub const ALL: [Self; 12] = [
        Self::Sum,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::Land,
        Self::Lor,
        Self::Lxor,
        Self::Band,
        Self::Bor,
        Self::Bxor,
        Self::Minloc,
        Self::Maxloc,
    ];

    /// The name in messages and on command lines: `sum`, `maxloc`, ...
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Land => "land",
            Self::Lor => "lor",
            Self::Lxor => "lxor",
            Self::Band => "band",
            Self::Bor => "bor",
            Self::Bxor => "bxor",
            Self::Minloc => "minloc",
            Self::Maxloc => "maxloc",
        }
    }

    /// The number that stands for this operator outside Rust.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The operator with this code, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Whether the operator is defined on the datatype (MPI 4.1, section 6.9.2, with `f16` and `bf16`
/// counted as floating point).
#[must_use]
#[inline]
pub const fn is_defined(datatype: Datatype, operator: Operator) -> bool {
    // Of the last row nothing is true: only users' operators reduce records.
    const TABLE: [[bool; Operator::ALL.len()]; Datatype::ROWS] = {
        let mut table = [[false; Operator::ALL.len()]; Datatype::ROWS];
        let mut row = 0;
        while row < Datatype::ALL.len() {
            let mut column = 0;
            while column < table[row].len() {
                table[row][column] = class_has(Datatype::ALL[row], Operator::ALL[column]);
                column += 1;
            }
            row += 1;
        }
        table
    };
    TABLE[datatype.row()][operator as usize]
}

const fn class_has(datatype: Datatype, operator: Operator) -> bool {
    use Operator::{Band, Bor, Bxor, Land, Lor, Lxor, Max, Maxloc, Min, Minloc, Prod, Sum};
    match datatype.class() {
        Class::Integer => !matches!(operator, Minloc | Maxloc),
        Class::FloatingPoint => matches!(operator, Sum | Prod | Min | Max),
        Class::Complex => matches!(operator, Sum | Prod),
        Class::Logical => matches!(operator, Land | Lor | Lxor),
        Class::Byte => matches!(operator, Band | Bor | Bxor),
        Class::Pair => matches!(operator, Minloc | Maxloc),
        Class::Record => false,
    }
}

/// What a reduction applies: a built-in operator or one of the user's.
#[derive(Clone, Debug)]
pub enum Op {
    /// One of the kernels of this crate.
    Builtin(Operator),
    /// A function of the user.
    User(UserOperator),
}

const _: () = assert!(size_of::<Option<Op>>() == 2 * size_of::<usize>());

impl Op {
    /// Whether operands may be combined in another order than that of the ranks.
    #[must_use]
    pub fn is_commutative(&self) -> bool {
        match self {
            Self::Builtin(_) => true,
            Self::User(user) => user.is_commutative(),
        }
    }

    /// Whether it can reduce this datatype. A raw user operator takes all of them.
    #[must_use]
    #[inline]
    pub fn is_defined_for(&self, datatype: Datatype) -> bool {
        match self {
            Self::Builtin(operator) => is_defined(datatype, *operator),
            Self::User(user) => user.datatype().is_none_or(|only| only == datatype),
        }
    }

    /// The name in messages: that of the built-in operator, or `user`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Builtin(operator) => operator.name(),
            Self::User(_) => "user",
        }
    }
}

impl From<Operator> for Op {
    fn from(operator: Operator) -> Self {
        Self::Builtin(operator)
    }
}

impl From<UserOperator> for Op {
    fn from(user: UserOperator) -> Self {
        Self::User(user)
    }
}
