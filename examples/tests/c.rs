//! The C programs: built against `han.h` and the library in the build folder, run under `han run`,
//! and compared with the Rust programs, bit for bit.

mod common;

use common::{built, han_run, stdout, stdout_over_nodes, without_times};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

/// The program of c/`name`.c; the first call compiles all.
fn compiled(name: &str) -> PathBuf {
    static COMPILE: Once = Once::new();
    COMPILE.call_once(|| ["hello", "gradient", "asp"].into_iter().for_each(compile));
    path_of(name)
}

fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{name}"))
}

fn compile(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(std::env::var("CC").unwrap_or("cc".into()))
        .args(["-std=c11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(folder.join("../han/capi/include"))
        .arg(folder.join("c").join(name).with_extension("c"))
        .arg("-o")
        .arg(path_of(name))
        .arg(built("libhan_capi.a"))
        .args(["-lm", "-lpthread", "-ldl"])
        .output()
        .expect("the C compiler starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn data(name: &str) -> String {
    format!("{}/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn hello_greets_from_every_rank() {
    let (c, rust) = (compiled("hello"), Path::new(env!("CARGO_BIN_EXE_hello")));
    for ranks in [1, 3] {
        let (c, rust) = (stdout(ranks, &c, &[]), stdout(ranks, rust, &[]));
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(String::from).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(&c), sorted(&rust));
    }
}

#[test]
fn gradient_computes_the_bits_of_the_rust_program() {
    let (c, rust) = (compiled("gradient"), Path::new(env!("CARGO_BIN_EXE_gradient")));
    for ranks in [1, 4] {
        let c = stdout(ranks, &c, &[&data("digits.csv"), "50"]);
        let rust = stdout(ranks, rust, &["--steps", "50"]);
        assert_eq!(without_times(&c), without_times(&rust));
    }
}

#[test]
fn programs_over_several_nodes_agree() {
    let (c, rust) = (compiled("gradient"), Path::new(env!("CARGO_BIN_EXE_gradient")));
    let c = stdout_over_nodes(8, 4, &c, &[&data("digits.csv"), "20"]);
    let rust = stdout_over_nodes(8, 4, rust, &["--steps", "20"]);
    assert!(rust.contains("on every rank"), "{rust}");
    assert_eq!(without_times(&c), without_times(&rust));
    // Integers: the same on one node and on several.
    let asp = Path::new(env!("CARGO_BIN_EXE_asp"));
    let arguments = ["--airports", "200", "--neighbours", "2"];
    assert_eq!(without_times(&stdout_over_nodes(4, 2, asp, &arguments)), without_times(&stdout(4, asp, &arguments)));
}

#[test]
fn asp_finds_the_paths_of_the_rust_program() {
    let (c, rust) = (compiled("asp"), Path::new(env!("CARGO_BIN_EXE_asp")));
    for ranks in [1, 4] {
        let c = stdout(ranks, &c, &[&data("airports.csv"), "400", "2"]);
        let rust = stdout(ranks, rust, &["--airports", "400", "--neighbours", "2"]);
        assert_eq!(without_times(&c), without_times(&rust));
    }
}

#[test]
fn memory_that_peers_map_gives_the_same_results() {
    for (name, arguments) in
        [("gradient", vec![data("digits.csv"), "50".into()]), ("asp", vec![data("airports.csv"), "400".into()])]
    {
        let run = |alloc: &str| {
            let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            arguments.extend(["--alloc", alloc]);
            stdout(3, &compiled(name), &arguments)
        };
        assert_eq!(without_times(&run("private")), without_times(&run("shared")));
        let output = han_run(1, &compiled(name), &["--alloc", "huge"]).output().expect("han run starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("private or shared"), "{stderr}");
    }
}

#[test]
fn a_missing_file_is_named() {
    for name in ["gradient", "asp"] {
        let output = han_run(2, &compiled(name), &["nowhere.csv"]).output().expect("han run starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("cannot read nowhere.csv"), "{stderr}");
    }
}

#[test]
fn a_file_that_does_not_fit_is_named_with_the_reason() {
    let digits = std::fs::read_to_string(data("digits.csv")).expect("the data");
    let (before, label) = digits.lines().next().and_then(|line| line.rsplit_once(',')).expect("a first line");
    let first = format!("{before},{label}");
    for (name, text, why) in [
        ("gradient", digits.replacen(&first, &format!("{before},10"), 1), "line 1: label 10 is not in 0 to 9"),
        ("gradient", digits.replacen(&first, &format!("{before},-1"), 1), "line 1: label -1 is not in 0 to 9"),
        ("asp", "iata,lat,lon,country,city\n".to_owned(), "0 airports, but 2 are the least"),
        ("asp", "iata,lat,lon,country,city\nAAA,1,2,US,A\n".to_owned(), "1 airports, but 2 are the least"),
    ] {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("does-not-fit.csv");
        std::fs::write(&file, text).expect("a file");
        let file = file.to_str().expect("a path of UTF-8");
        let output = han_run(1, &compiled(name), &[file]).output().expect("han run starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let expected = format!("{name}: {file}: {why}");
        assert!(output.status.code() == Some(1) && stderr.contains(&expected), "{}: {stderr}", output.status);
    }
}
