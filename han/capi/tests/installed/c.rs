//! Programs in C and C++.

use crate::prefix::{
    compile, compile_shared, han_run, han_run_on, passes, pkg_config, prefix, run, succeed, with_archive,
};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const FLAGS: [&str; 7] = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"];

fn program(name: &str) -> PathBuf {
    let mut flags = FLAGS.to_vec();
    flags.push("-pthread");
    compile_shared("cc", &format!("tests/c/{name}.c"), name, &flags)
}

#[test]
fn all_datatypes_operators_and_roots() {
    passes(&program("collectives"));
}

#[test]
fn non_blocking_and_persistent_operations() {
    passes(&program("nonblocking"));
}

#[test]
fn user_operators_keep_the_order_of_ranks() {
    passes(&program("operators"));
}

#[test]
fn communicators_are_split_and_freed() {
    passes(&program("communicators"));
}

#[test]
fn memory_that_peers_can_reach() {
    passes(&program("memory"));
}

/// Peers do not reach the process then, but its memory is what it was.
#[test]
fn memory_is_registered_when_the_main_thread_has_ended() {
    passes(&program("main_ended"));
}

#[test]
fn wrong_arguments_give_codes() {
    passes(&program("misuse"));
}

/// The sanitizer finds what lies between objects when whole pages are moved, unless it does not see that.
#[test]
fn memory_is_registered_under_address_sanitizer() {
    let mut flags = FLAGS.to_vec();
    flags.push("-fsanitize=address");
    let program = compile_shared("cc", "tests/c/memory.c", "memory-sanitized", &flags);
    // What leaks it finds as a debugger does, which systems may refuse.
    let text = succeed(han_run(2, &program, &[]).env("ASAN_OPTIONS", "detect_leaks=0"));
    assert_eq!(text.trim(), "passed on 2 ranks");
}

#[test]
fn an_exception_in_an_operator_ends_its_process_with_a_message() {
    let program = compile_shared("c++", "tests/c/throws.cpp", "throws", &["-Wall", "-Werror"]);
    let output = run(&mut han_run(2, &program, &[]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("han: a user operator has panicked or thrown an exception"), "{errors}");
}

#[test]
fn ranks_find_each_other_by_a_callback() {
    let program = program("oob");
    for ranks in [1, 2, 3, 5] {
        let text = succeed(Command::new(&program).arg(ranks.to_string()));
        assert_eq!(text.trim(), format!("passed on {ranks} ranks"));
    }
}

#[test]
fn without_a_launcher_the_world_is_one_rank() {
    let program = compile_shared("cc", "tests/c/communicators.c", "communicators-alone", &FLAGS);
    assert_eq!(succeed(&mut Command::new(program)).trim(), "passed on 1 ranks");
}

#[test]
fn a_standard_error_that_takes_nothing_costs_messages_only() {
    let program = compile_shared("cc", "tests/c/communicators.c", "communicators-unheard", &FLAGS);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    for stderr in [Stdio::from(full), Stdio::from(unread)] {
        let text = succeed(Command::new(&program).env("HAN_LOG", "debug").stderr(stderr));
        assert_eq!(text.trim(), "passed on 1 ranks");
    }
}

/// The last words of han are an error of the system's, no mistake of the user's, and han has ended all the same.
#[test]
fn a_trace_that_cannot_be_written_is_an_error_of_a_han_that_has_ended() {
    let program = compile_shared("cc", "tests/c/finalize_fails.c", "finalize_fails", &FLAGS);
    let parent = program.with_extension("d");
    let _ = fs::remove_dir_all(&parent);
    let folder = parent.join("folder");
    fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new(program);
    command.arg(&folder).arg(parent.join("renamed")).env("HAN_TRACE", folder.join("trace.json"));
    assert_eq!(succeed(&mut command).trim(), "passed, its memory was shared before");
}

/// What has the numbers of han's descriptors by now is the program's.
#[test]
fn files_of_a_program_that_has_closed_all_descriptors_are_left_alone() {
    let program = compile_shared("cc", "tests/c/descriptors.c", "descriptors", &FLAGS);
    let output = run(&mut han_run_on(1, 2, &program, &[]));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("passed").count(), 2, "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `failures MODE` on 3 ranks; all of them but `absent` must have seen it.
fn fails(mode: &str, absent: usize, message: &str) -> Option<i32> {
    fails_on(1, 3, mode, absent, message)
}

/// The same on `ranks` ranks of `nodes` nodes.
fn fails_on(nodes: usize, ranks: usize, mode: &str, absent: usize, message: &str) -> Option<i32> {
    let name = format!("failures-{mode}-{nodes}"); // each test its own, as they run side by side
    let program = compile_shared("cc", "tests/c/failures.c", &name, &FLAGS);
    let output = run(&mut han_run_on(nodes, ranks, &program, &[mode]));
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    // Ranks that have told of it end well, and so does their job; an abort has a code.
    let is_told = matches!(mode, "died" | "mismatch");
    assert_eq!(output.status.success(), is_told, "{all}");
    assert!(!all.contains("not so") && !all.contains("returned"), "{all}");
    let seen = text.matches("saw it").count();
    // An abort ends the ranks at once, which may be before they say so; at least one has seen it.
    let least = if is_told { ranks - absent } else { 1 };
    assert!((least..=ranks - absent).contains(&seen), "{all}");
    assert!(text.contains(message), "{all}");
    output.status.code()
}

#[test]
fn a_death_is_an_error_on_the_survivors() {
    fails("died", 1, "rank 2");
}

#[test]
fn a_mismatch_shows_both_sides() {
    fails("mismatch", 0, "count 3");
}

#[test]
fn over_nodes_every_rank_is_told_the_same_kind_of_error() {
    fails_on(2, 4, "died", 1, "rank 3");
    fails_on(2, 4, "mismatch", 0, "count 3");
}

#[test]
fn an_abort_ends_the_job_with_its_code() {
    assert_eq!(fails("abort", 1, "han_abort(7)"), Some(7));
}

#[test]
fn an_abort_while_exiting_ends_the_process() {
    let program = program("exits");
    assert_eq!(run(&mut Command::new(program)).status.code(), Some(7));
}

#[test]
fn an_abort_with_a_code_is_no_success() {
    let program = compile_shared("cc", "tests/c/exits.c", "exits-with-a-code", &FLAGS);
    for (code, expected) in [("3", 3), ("0", 1), ("256", 1), ("257", 1), ("-1", 255), ("-256", 1)] {
        assert_eq!(run(Command::new(&program).arg(code)).status.code(), Some(expected), "{code}");
    }
}

#[test]
fn an_abort_in_an_operator_ends_the_job() {
    fails("callback", 1, "rank 0");
}

#[test]
fn libhan_a_links_statically() {
    let libraries = pkg_config(&["--static", "--cflags", "--libs"]);
    let mut flags = FLAGS.to_vec();
    flags.push("-static");
    let program = compile("cc", "tests/c/collectives.c", "collectives-static", &flags, &libraries);
    let dynamic = run(Command::new("readelf").arg("-d").arg(&program));
    let dynamic = String::from_utf8_lossy(&dynamic.stdout).into_owned();
    assert!(!dynamic.contains("NEEDED"), "{dynamic}");
    passes(&program);
}

/// As `linking.md` has it: without the run-time path.
#[test]
fn libhan_a_links_into_a_static_program_that_can_be_loaded_anywhere() {
    let mut libraries = with_archive();
    libraries.retain(|flag| !flag.starts_with("-Wl,-rpath"));
    let mut flags = FLAGS.to_vec();
    flags.push("-static-pie");
    passes(&compile("cc", "tests/c/collectives.c", "collectives-static-pie", &flags, &libraries));
}

#[test]
fn libhan_a_links_into_a_dynamic_program() {
    let program = compile("cc", "tests/c/nonblocking.c", "nonblocking-archive", &FLAGS, &with_archive());
    let dynamic = succeed(Command::new("readelf").arg("-d").arg(&program));
    assert!(!dynamic.contains("libhan"), "{dynamic}");
    passes(&program);
}

#[test]
fn the_header_is_clean_c99_and_cxx() {
    let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
    let header = prefix().join("include/han.h");
    for (compiler, language, standard) in [("cc", "c", "-std=c99"), ("c++", "c++", "-std=c++98")] {
        succeed(Command::new(compiler).args([standard, "-x", language]).args(warnings).arg(&header));
    }
    passes(&compile_shared("c++", "tests/c/header.cpp", "header", &["-std=c++17", "-Wall", "-Werror"]));
}
