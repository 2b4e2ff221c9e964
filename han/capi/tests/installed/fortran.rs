//! Programs in Fortran.

use crate::prefix::{compile, compile_shared, han_run, passes, pkg_config, run, with_archive};
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

const FLAGS: [&str; 4] = ["-std=f2018", "-Wall", "-Werror", "-O1"];

fn program(name: &str) -> PathBuf {
    let modules = format!("-J{}", crate::prefix::module_directory(name).display());
    let mut flags = FLAGS.to_vec();
    flags.push(&modules);
    compile_shared("gfortran", &format!("tests/fortran/{name}.f90"), &format!("f-{name}"), &flags)
}

#[test]
fn collectives() {
    passes(&program("collectives"));
}

#[test]
fn non_blocking_and_persistent() {
    passes(&program("nonblocking"));
}

#[test]
fn memory_that_peers_can_reach() {
    passes(&program("memory"));
}

#[test]
fn operators_and_communicators() {
    passes(&program("operators"));
}

#[test]
fn a_failure_nobody_asked_about_ends_the_job_with_its_message() {
    let program = program("failure");
    let output = run(&mut han_run(2, &program, &[]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    // The second one may have been ended before it came so far.
    let named = [0, 1].map(|rank| errors.contains(&format!("han: rank {rank}: han_bcast: root 99 is not a rank")));
    assert!(named.contains(&true), "{errors}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("went on"));

    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(run(Command::new(program).stderr(full)).status.code(), Some(6));
}

#[test]
fn libhan_a_links_into_a_fortran_program() {
    let modules = format!("-J{}", crate::prefix::module_directory("archive").display());
    let flags = ["-std=f2018", "-O1", &modules];
    let file = "tests/fortran/collectives.f90";
    passes(&compile("gfortran", file, "f-collectives-archive", &flags, &with_archive()));
}

#[test]
fn libhan_a_links_into_a_static_fortran_program() {
    let modules = format!("-J{}", crate::prefix::module_directory("static").display());
    let flags = ["-std=f2018", "-O1", "-static", &modules];
    let libraries = pkg_config(&["--static", "--cflags", "--libs"]);
    passes(&compile("gfortran", "tests/fortran/collectives.f90", "f-collectives-static", &flags, &libraries));
}
