//! The programs, and what they must say whoever started them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::sys::signal::{Signal, kill};

use crate::harness::{Finished, Job, Running, eventually, name};

/// Every reduction gives the same bits, however many nodes there are.
pub(crate) const REPRODUCIBLE: (&str, &str) = ("HAN_REPRODUCIBLE", "1");

/// The C example `hello`, linked with the library in the build folder.
pub(crate) fn hello() -> String {
    static HELLO: OnceLock<String> = OnceLock::new();
    HELLO.get_or_init(|| compile("hello")).clone()
}

fn compile(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("launched-{name}"));
    let output = Command::new(std::env::var("CC").unwrap_or("cc".into()))
        .args(["-std=c11", "-O2", "-I"])
        .arg(root.join("han/capi/include"))
        .arg(root.join("examples/c").join(name).with_extension("c"))
        .arg("-o")
        .arg(&program)
        .arg(built("libhan_capi.a"))
        .args(["-lm", "-lpthread", "-ldl"])
        .output()
        .expect("the C compiler starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program.to_str().unwrap().to_owned()
}

/// The example `gradient` in Rust.
pub(crate) fn gradient() -> String {
    built("gradient").to_str().unwrap().to_owned()
}

/// A file that was built beside the launcher.
fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_han")).with_file_name(name);
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    assert!(path.exists(), "{} is missing: run `cargo build --workspace{release}` first", path.display());
    path
}

/// Checks that every rank has greeted.
#[track_caller]
pub(crate) fn expect_greetings(done: &Finished, ranks: usize) {
    done.expect(0, &[]);
    let mut expected: Vec<String> = (0..ranks).map(|rank| format!("hello from rank {rank} of {ranks}")).collect();
    expected.push(format!("the ranks add up to {}", ranks * (ranks - 1) / 2));
    expected.sort_unstable();
    // Some launchers write lines of their own.
    let said =
        done.sorted_lines().into_iter().filter(|line| line.starts_with("hello") || line.starts_with("the ranks"));
    assert_eq!(said.collect::<Vec<_>>(), expected, "{done:#?}");
}

/// The words after a launcher's own for a short training.
pub(crate) fn training() -> [String; 3] {
    [gradient(), "--steps".to_owned(), "20".to_owned()]
}

/// Checks that a training under [`REPRODUCIBLE`] has the same bits as under `han run`.
#[track_caller]
pub(crate) fn expect_training(done: &Finished, ranks: usize) {
    done.expect(0, &[]);
    let [program, option, steps] = training();
    let (name, value) = REPRODUCIBLE;
    let model = Job::new(&["-n", &ranks.to_string(), "--", &program, &option, &steps]).env(name, value).finish();
    model.expect(0, &[]);
    let losses = |done: &Finished| -> Vec<String> {
        done.stdout.lines().filter(|line| line.contains("loss")).map(str::to_owned).collect()
    };
    assert!(losses(&model).last().is_some_and(|line| line.ends_with("on every rank")), "{model:#?}");
    assert_eq!(losses(done), losses(&model), "{done:#?}");
}

/// A training that only its end by force ends.
pub(crate) fn endless_training() -> [String; 3] {
    [gradient(), "--steps".to_owned(), "1000000000".to_owned()]
}

/// What an endless training says first, when all of its three ranks are there.
pub(crate) const TRAINING_BEGINS: &str = "1438 training images on 3 ranks";

/// Kills one rank of an endless training; the launcher must report a failure and leave nothing.
pub(crate) fn kill_one_rank(mut job: Running) {
    job.wait_for_lines(TRAINING_BEGINS, 1);
    let mut ranks: Vec<_> = job.processes().into_iter().filter(|pid| name(*pid) == "gradient").collect();
    ranks.sort_unstable();
    assert_eq!(ranks.len(), 3, "of the processes {ranks:?}");
    kill(ranks[1], Signal::SIGKILL).unwrap();
    let done = job.wait();
    assert_ne!(done.code, 0, "{done:#?}");
    // A launcher may end before the last process on another node does.
    eventually("all ranks are gone", || ranks.iter().all(|pid| name(*pid) != "gradient"));
}
