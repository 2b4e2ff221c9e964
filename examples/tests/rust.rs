//! The Rust programs under `han run`.

mod common;

use common::{RANKS, han_run, stdout, without_times, word_after};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

const HELLO: &str = env!("CARGO_BIN_EXE_hello");
const GRADIENT: &str = env!("CARGO_BIN_EXE_gradient");
const ASP: &str = env!("CARGO_BIN_EXE_asp");

#[test]
fn hello_greets_from_every_rank() {
    for ranks in RANKS {
        let printed = stdout(ranks, Path::new(HELLO), &[]);
        let mut lines: Vec<&str> = printed.lines().collect();
        lines.sort_unstable();
        let mut expected: Vec<String> = (0..ranks).map(|rank| format!("hello from rank {rank} of {ranks}")).collect();
        expected.push(format!("the ranks add up to {}", ranks * (ranks - 1) / 2));
        assert_eq!(lines, expected);
    }
}

fn loss(printed: &str) -> f64 {
    let bits = word_after(printed, "= 0x");
    f64::from_bits(u64::from_str_radix(bits, 16).expect("bits of the loss"))
}

#[test]
fn gradient_repeats_its_bits_and_keeps_the_bound() {
    let arguments = ["--steps", "40", "--check"];
    let one_rank = loss(&stdout(1, Path::new(GRADIENT), &arguments));
    for ranks in RANKS {
        let printed = stdout(ranks, Path::new(GRADIENT), &arguments);
        let again = stdout(ranks, Path::new(GRADIENT), &arguments);
        assert_eq!(without_times(&printed), without_times(&again), "{ranks} ranks");
        let bound: f64 = word_after(&printed, "bound ").parse().expect("the bound");
        assert!(bound < 1e-8, "a bound of {bound} says nothing");
        let difference = (loss(&printed) - one_rank).abs();
        assert!(difference <= bound, "{ranks} ranks: {difference:e} > {bound:e}");
    }
}

#[test]
fn gradient_learns() {
    let printed = stdout(4, Path::new(GRADIENT), &[]);
    let accuracy: f64 = word_after(&printed, "test accuracy ").parse().expect("the accuracy");
    assert!(accuracy > 95.0, "{printed}");
}

/// The digests were confirmed by a program that shares nothing with this one: Dijkstra from every
/// airport, distances from the cross product.
#[test]
fn asp_finds_the_shortest_paths() {
    for ranks in RANKS {
        let run = |arguments: &[&str]| stdout(ranks, Path::new(ASP), arguments);
        let printed = run(&["--airports", "300", "--check"]);
        assert_eq!(word_after(&printed, "distances: "), "0b9698a9b14552e0", "{ranks} ranks");
        assert!(printed.contains("check: all 300 rows equal"), "{printed}");

        let printed = run(&["--airports", "400", "--neighbours", "2", "--check"]);
        assert_eq!(word_after(&printed, "distances: "), "110d7e1e0ecafd32", "{ranks} ranks");
        assert_eq!(word_after(&printed, "without a path: "), "135286");

        // Fewer rows than ranks.
        let printed = run(&["--airports", "3", "--check"]);
        assert!(printed.contains("check: all 3 rows equal"), "{printed}");
    }
    let printed = stdout(4, Path::new(ASP), &[]);
    assert_eq!(word_after(&printed, "2280 x 2280 distances: "), "9061b192c6c0288a");
    assert!(printed.contains("RRG (Port Mathurin, MU) to UGL (Antartica, AQ), 30633.363 km"));
}

#[test]
fn memory_that_peers_map_gives_the_same_results() {
    for ranks in [1, 2, 4] {
        for (program, arguments) in [(GRADIENT, ["--steps", "40"]), (ASP, ["--airports", "700"])] {
            let run = |alloc| {
                let arguments = [arguments[0], arguments[1], "--check", "--alloc", alloc];
                stdout(ranks, Path::new(program), &arguments)
            };
            let (private, shared) = (run("private"), run("shared"));
            assert!(shared.contains("check: "), "{shared}");
            assert_eq!(without_times(&private), without_times(&shared), "{program} on {ranks} ranks");
        }
    }
    // Rows that are read where they are.
    let mut command = han_run(4, Path::new(ASP), &["--alloc", "shared"]);
    let output = command.env("HAN_SET", "single_copy_min_bytes=4096").output().expect("han run starts");
    let printed = String::from_utf8(output.stdout).expect("the programs print UTF-8");
    assert_eq!(word_after(&printed, "2280 x 2280 distances: "), "9061b192c6c0288a");
}

#[test]
fn wrong_options_are_refused() {
    for (program, arguments) in [
        (GRADIENT, ["--steps", "0"]),
        (GRADIENT, ["--rate", "1"]),
        (ASP, ["--airports", "1"]),
        (ASP, ["--neighbours", "some"]),
        (GRADIENT, ["--alloc", "huge"]),
        (ASP, ["--alloc", "huge"]),
    ] {
        let output = han_run(1, Path::new(program), &arguments).output().expect("han run starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("--"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn what_cannot_be_written_or_read_is_an_error_in_a_line() {
    let failed = |command: &mut Command, why: &str| {
        let output = command.stderr(Stdio::piped()).output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.lines().count() == 1 && said.contains(why), "{said}");
    };
    for (program, arguments) in [(GRADIENT, ["--steps", "2"]), (ASP, ["--airports", "9"])] {
        let command = || {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        let full = || File::options().write(true).open("/dev/full").expect("/dev/full");
        failed(command().stdout(full()), "cannot write to standard output: No space left");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        failed(command().stdout(writer), "cannot write to standard output: Broken pipe");
        let mute = command().stdout(full()).stderr(full()).status().expect("the program starts");
        assert_eq!(mute.code(), Some(1), "{program}");
    }
    for program in [GRADIENT, ASP] {
        failed(Command::new(program).arg(OsStr::from_bytes(b"--steps\xff")), "usage: ");
    }
}

/// The processes that were started as `command_line`.
fn processes(command_line: &[&str]) -> Vec<u32> {
    let command_line: String = command_line.iter().flat_map(|word| [word, "\0"]).collect();
    let is_one =
        |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|read| read == command_line.as_bytes());
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(is_one).collect()
}

#[test]
fn a_dead_rank_ends_the_program_with_an_error() {
    // A number of steps that takes for ever, and tells this run from others.
    let steps = (1_000_000_000 + std::process::id()).to_string();
    let mut command = han_run(3, Path::new(GRADIENT), &["--steps", &steps]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("han run starts");
    let mut lines = BufReader::new(run.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a first line").expect("text");
    assert!(first.contains("training images on 3 ranks"), "{first}"); // now all ranks are in the training
    let victim = processes(&[GRADIENT, "--steps", &steps])[1].to_string();
    let killed = Command::new("kill").args(["-9", &victim]).status();
    assert!(killed.expect("kill starts").success());

    let output = run.wait_with_output().expect("han run ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    let complaint = stderr.lines().find(|line| line.contains("gradient: "));
    assert!(complaint.is_some_and(|line| line.contains(&victim)), "no rank names pid {victim}: {stderr}");
}
