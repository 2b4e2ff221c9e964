//! The constants of `include/han.h` and `fortran/han.f90` are those of the code: same names, same
//! values, none missing on any side.

use crate::arguments::IN_PLACE;
use crate::communicator::UNDEFINED;
use crate::error::Code;
use crate::lifecycle::VERSION;
use han::{Datatype, Operator};
use std::collections::BTreeMap;

const HEADER: &str = include_str!("../include/han.h");
const MODULE: &str = include_str!("../fortran/han.f90");

type Constants = BTreeMap<String, i64>;

/// `ComplexFloat` as `HAN_COMPLEX_FLOAT`.
fn constant(prefix: &str, name: &str) -> String {
    let mut constant = prefix.to_owned();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            constant.push('_');
        }
        constant.push(letter.to_ascii_uppercase());
    }
    constant
}

fn in_the_code() -> Constants {
    let mut constants = Constants::new();
    let mut add = |name: String, value| assert!(constants.insert(name, value).is_none());
    for name in ["HAN_SUCCESS", "HAN_COMM_NULL", "HAN_REQUEST_NULL", "HAN_OP_NULL"] {
        add(name.to_owned(), 0);
    }
    add("HAN_DATATYPE_NULL".to_owned(), -1);
    add("HAN_UNDEFINED".to_owned(), i64::from(UNDEFINED));
    add("HAN_HAS_REGISTER".to_owned(), 1);
    for (part, number) in ["MAJOR", "MINOR", "PATCH"].iter().zip(VERSION) {
        add(format!("HAN_VERSION_{part}"), i64::from(number));
    }
    for (code, _) in Code::ALL {
        add(constant("HAN_ERR", &format!("{code:?}")), i64::from(code as i32));
    }
    for datatype in Datatype::ALL {
        let name = match datatype {
            Datatype::TwoInt => "HAN_2INT".to_owned(),
            _ => constant("HAN", &format!("{datatype:?}")),
        };
        add(name, i64::from(datatype.code()));
    }
    let largest = Datatype::record(Datatype::MOST_RECORD_BYTES).map_or(0, |record| record.code().into());
    add("HAN_RECORD_LARGEST".to_owned(), largest);
    for operator in Operator::ALL {
        add(constant("HAN", &format!("{operator:?}")), i64::from(operator.code()) + 1);
    }
    constants
}

/// The number at the end of `((han_op_t)3)`, `han_op_t(3)`, `3,` or `(-32766)`.
fn number(text: &str) -> Option<i64> {
    let digits = text.trim().trim_end_matches([')', ',']);
    let start = digits.rfind(|c: char| !c.is_ascii_digit() && c != '-').map_or(0, |at| at + 1);
    digits[start..].parse().ok()
}

/// `NAME = value` or `#define NAME value`, one a line, without C comments.
fn in_the_header() -> Constants {
    let mut constants = Constants::new();
    for line in HEADER.lines() {
        let line = line.split("/*").next().unwrap_or_default().trim();
        let parts = match line.strip_prefix("#define ") {
            Some(definition) => definition.split_once(' '),
            None => line.split_once(" = "),
        };
        let Some((name, value)) = parts else { continue };
        if name.starts_with("HAN_")
            && name != "HAN_IN_PLACE"
            && let Some(value) = number(value)
        {
            assert!(constants.insert(name.to_owned(), value).is_none(), "{name} twice");
        }
    }
    constants
}

/// `..., parameter, public :: NAME = value`, one a line.
fn in_the_module() -> Constants {
    let mut constants = Constants::new();
    for line in MODULE.lines() {
        let Some((_, definition)) = line.split_once("parameter, public :: ") else { continue };
        let (name, value) = definition.split_once(" = ").unwrap_or((definition, ""));
        let value = number(value).unwrap_or_else(|| panic!("no number: {line}"));
        assert!(constants.insert(name.to_owned(), value).is_none(), "{name} twice");
    }
    constants
}

#[test]
fn the_header_has_the_constants_of_the_code() {
    assert_eq!(in_the_header(), in_the_code());
    assert!(HEADER.contains("#define HAN_IN_PLACE ((void *)(intptr_t)-1)"));
    assert_eq!(IN_PLACE, (-1_isize).cast_unsigned());
    assert!(HEADER.contains("#define HAN_RECORD(bytes) ((han_datatype_t)(4096 + (bytes)))"));
    assert_eq!(Datatype::RECORD_CODES, 4096);
}

#[test]
fn the_fortran_module_has_the_constants_of_the_code() {
    assert_eq!(in_the_module(), in_the_code());
}

#[test]
fn codes_are_numbered_in_the_order_of_their_table() {
    for (index, (code, meaning)) in (1..).zip(Code::ALL) {
        assert_eq!(code as i32, index);
        assert!(!meaning.is_empty());
    }
}
