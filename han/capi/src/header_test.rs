//! The constants of `include/han.h` and `fortran/han.f90` are those of the code: same names, same
//! values, none missing on any side. So are the functions of `han.h`, with what they take and return.

use crate::arguments::IN_PLACE;
use crate::communicator::UNDEFINED;
use crate::error::Code;
use crate::lifecycle::VERSION;
use crate::names::{self, constant};
use han::{Datatype, Operator};
use std::collections::BTreeMap;

const HEADER: &str = include_str!("../include/han.h");
const MODULE: &str = include_str!("../fortran/han.f90");

/// Where the functions are.
const SOURCES: [&str; 8] = [
    include_str!("collective.rs"),
    include_str!("communicator.rs"),
    include_str!("error.rs"),
    include_str!("exchange.rs"),
    include_str!("lifecycle.rs"),
    include_str!("memory.rs"),
    include_str!("operator.rs"),
    include_str!("request.rs"),
];

/// Types of `han.h`, and those of the code that a caller cannot tell from each.
const TYPES: [(&str, &[&str]); 18] = [
    ("void", &["void"]),
    ("int", &["c_int"]),
    ("size_t", &["usize"]),
    ("han_datatype_t", &["c_int"]),
    ("han_comm_t", &["Comm"]),
    ("han_op_t", &["Op"]),
    ("han_allgather_function", &["Option<AllgatherFunction>"]),
    ("han_op_function", &["OpFunction"]),
    ("const char *", &["*const c_char"]),
    ("char *", &["Text"]),
    ("const void *", &["Source", "*const c_void"]),
    ("void *", &["Target", "*mut c_void"]),
    ("void **", &["Out<*mut c_void>"]),
    ("int *", &["Out<c_int>"]),
    ("size_t *", &["Out<usize>"]),
    ("han_comm_t *", &["Out<Comm>", "InOut<Handle<Communicator>>"]),
    ("han_op_t *", &["Out<Handle<UserOperator>>", "InOut<Handle<UserOperator>>"]),
    ("han_request_t *", &["NewRequest", "InOut<Handle<Request>>", "Array<Handle<Request>>"]),
];

type Constants = BTreeMap<String, i64>;
/// By name: the types of the result and of the parameters, as the text has them.
type Functions = BTreeMap<String, Vec<String>>;

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
        add(names::datatype(datatype), i64::from(datatype.code()));
    }
    let largest = Datatype::record(Datatype::MOST_RECORD_BYTES).map_or(0, |record| record.code().into());
    add("HAN_RECORD_LARGEST".to_owned(), largest);
    for operator in Operator::ALL {
        add(names::operator(operator), i64::from(operator.code()) + 1);
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

/// `text` with one space for each gap.
fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `int han_f(const void *buffer, int roots[])` and types of functions: `int (*han_f)(...)`.
fn functions_of_the_header() -> Functions {
    let comments = HEADER.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code));
    let lines = comments.collect::<String>();
    let code: String = lines.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, " "]).collect();
    let mut functions = Functions::new();
    for declaration in code.split(';').map(spaced) {
        let declaration = declaration.trim_start_matches("extern \"C\" { ").trim_start_matches("typedef ");
        let Some((head, parameters)) = declaration.replace("(*", "").replace(")(", "(").split_once('(').map(owned)
        else {
            continue;
        };
        let parameters = parameters.trim_end_matches(')').split(',').map(str::trim).filter(|one| *one != "void");
        let types = std::iter::once(head.as_str()).chain(parameters).map(type_in_c).collect();
        assert!(functions.insert(name_in_c(&head).to_owned(), types).is_none(), "{head} twice");
    }
    functions
}

fn owned((head, tail): (&str, &str)) -> (String, String) {
    (head.to_owned(), tail.to_owned())
}

fn name_in_c(declared: &str) -> &str {
    declared.rsplit([' ', '*']).next().unwrap_or_default()
}

/// `han_request_t *` of `han_request_t requests[]`.
fn type_in_c(declared: &str) -> String {
    let array = declared.strip_suffix("[]");
    let declared = array.unwrap_or(declared);
    let kind = declared.strip_suffix(name_in_c(declared)).unwrap_or_default().trim();
    if array.is_some() { format!("{kind} *") } else { kind.to_owned() }
}

/// `pub extern "C" fn han_f(buffer: Target, root: c_int) -> c_int {`, and `type AllgatherFunction =` and the like.
fn functions_of_the_code() -> Functions {
    let mut functions = Functions::new();
    let mut add = |name: &str, text: &str| {
        let (parameters, rest) = text.split_once(')').expect("parameters");
        let result = rest.split([';', '{', '>']).nth(1).filter(|_| rest.starts_with(" ->")).unwrap_or("void");
        let kind = |one: &str| one.split_once(": ").map_or(one, |(_, kind)| kind).trim().to_owned();
        let parameters = parameters.split(',').map(str::trim).filter(|one| !one.is_empty()).map(kind);
        let types = std::iter::once(result.trim().to_owned()).chain(parameters).collect();
        assert!(functions.insert(name.to_owned(), types).is_none(), "{name} twice");
    };
    for source in SOURCES.map(spaced) {
        for text in source.split("pub extern \"C\" fn ").skip(1) {
            let (name, text) = text.split_once('(').expect("a function");
            add(name, text);
        }
        for (name, alias) in
            [("han_allgather_function", "type AllgatherFunction ="), ("han_op_function", "type OpFunction =")]
        {
            if let Some((_, text)) = source.split_once(alias) {
                add(name, text.split_once("fn(").expect("a function").1);
            }
        }
    }
    functions
}

#[test]
fn the_header_has_the_functions_of_the_code_with_what_they_take_and_return() {
    let (header, code) = (functions_of_the_header(), functions_of_the_code());
    assert_eq!(header.keys().collect::<Vec<_>>(), code.keys().collect::<Vec<_>>());
    for (name, types) in &header {
        let fits = |(c, rust): (&String, &String)| {
            let known = TYPES.iter().find(|(known, _)| known == c).unwrap_or_else(|| panic!("{c:?} of {name}"));
            known.1.contains(&rust.as_str())
        };
        let theirs = &code[name];
        assert!(types.len() == theirs.len() && types.iter().zip(theirs).all(fits), "{name}: {types:?}, {theirs:?}");
    }
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
