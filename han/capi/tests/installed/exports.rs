//! What the library exports is what the header and the Fortran module declare, on both sides.

use crate::prefix::{prefix, source, succeed};
use std::collections::BTreeSet;
use std::process::Command;

/// The functions that a preprocessed header declares: names before a parenthesis, typedefs apart.
pub(crate) fn declared_in_c() -> BTreeSet<String> {
    let header = prefix().join("include/han.h");
    let text = succeed(Command::new("cc").args(["-E", "-P"]).arg(header));
    let text: Vec<&str> = text.split_whitespace().collect();
    let declarations = text.join(" ");
    let mut names = BTreeSet::new();
    for declaration in declarations.split(';').map(str::trim).filter(|d| !d.starts_with("typedef")) {
        let Some((head, _)) = declaration.split_once('(') else { continue };
        let name = head.rsplit([' ', '*']).next().unwrap_or_default();
        if name.starts_with("han_") {
            assert!(names.insert(name.to_owned()), "{name} is declared twice");
        }
    }
    names
}

/// The names that the Fortran module binds to.
fn bound_by_fortran() -> BTreeSet<String> {
    let module = std::fs::read_to_string(source("fortran/han.f90")).unwrap();
    let names = module.split("bind(C, name=\"").skip(1);
    names.map(|rest| rest.split('"').next().unwrap_or_default().to_owned()).collect()
}

fn exported() -> BTreeSet<String> {
    let library = prefix().join("lib/libhan.so");
    let table = succeed(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library));
    let symbols = table.lines().map(|line| line.split(['@', ' ']).next().unwrap_or_default().to_owned());
    symbols.filter(|symbol| symbol != "HAN_0").collect() // the version itself is one as well
}

#[test]
fn every_symbol_is_declared_and_every_declaration_is_exported() {
    let (c, fortran, exported) = (declared_in_c(), bound_by_fortran(), exported());
    assert!(c.len() > 30 && fortran.len() > 50, "the parsers find declarations: {c:?} {fortran:?}");
    assert!(c.is_disjoint(&fortran));
    let declared: BTreeSet<String> = c.union(&fortran).cloned().collect();
    let undeclared: Vec<_> = exported.difference(&declared).collect();
    let missing: Vec<_> = declared.difference(&exported).collect();
    assert!(undeclared.is_empty(), "exported, but declared nowhere: {undeclared:?}");
    assert!(missing.is_empty(), "declared, but not exported: {missing:?}");
}

/// Fortran has a counterpart of every C function.
#[test]
fn fortran_has_every_function() {
    let fortran = bound_by_fortran();
    for function in declared_in_c() {
        let bare = function.replacen("han_", "han_fortran_", 1);
        let bound =
            fortran.contains(&bare) || ["_i32", "_i64"].iter().all(|kind| fortran.contains(&format!("{bare}{kind}")));
        assert!(bound, "{function} has no Fortran counterpart");
    }
}
