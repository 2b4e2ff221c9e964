//! What `han.h` calls datatypes and operators, for messages.

use han::{Datatype, Op, Operator};

/// `ComplexFloat` as `HAN_COMPLEX_FLOAT`.
pub(crate) fn constant(prefix: &str, name: &str) -> String {
    let mut constant = prefix.to_owned();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            constant.push('_');
        }
        constant.push(letter.to_ascii_uppercase());
    }
    constant
}

pub(crate) fn datatype(datatype: Datatype) -> String {
    match datatype {
        Datatype::TwoInt => "HAN_2INT".to_owned(),
        Datatype::Record(_) => format!("HAN_RECORD({})", datatype.size()),
        _ => constant("HAN", &format!("{datatype:?}")),
    }
}

pub(crate) fn operator(operator: Operator) -> String {
    constant("HAN", &format!("{operator:?}"))
}

/// The predefined operators that a datatype has, in words.
pub(crate) fn operators_of(datatype: Datatype) -> String {
    let defined = Operator::ALL.into_iter().filter(|&one| Op::Builtin(one).is_defined_for(datatype));
    let names: Vec<_> = defined.map(operator).collect();
    if names.is_empty() { "those of han_op_create alone".to_owned() } else { names.join(", ") }
}

/// The datatype of a pair's value, which is easily taken for that of the pair.
pub(crate) fn value_of(pair: Datatype) -> Option<Datatype> {
    match pair {
        Datatype::FloatInt => Some(Datatype::Float),
        Datatype::DoubleInt => Some(Datatype::Double),
        Datatype::LongInt => Some(Datatype::Int64),
        Datatype::TwoInt => Some(Datatype::Int32),
        Datatype::ShortInt => Some(Datatype::Int16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_alone_have_a_value() {
        for datatype in Datatype::ALL {
            assert_eq!(value_of(datatype).is_some(), Op::Builtin(Operator::Minloc).is_defined_for(datatype));
        }
    }
}
