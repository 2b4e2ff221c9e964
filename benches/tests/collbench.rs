//! The program `collbench` with han: it measures every way it is asked to, and finds wrong results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use benches::applications;
use benches::contestants::{self, Places};
use benches::job::{self, Outcome};

/// Sizes around whole elements, and pieces of several chunks.
const SIZES: &str = "4,12,1K,40001,100000";

/// The release directory with `han` and `collbench/han` in it.
fn release() -> &'static Path {
    static RELEASE: OnceLock<PathBuf> = OnceLock::new();
    RELEASE.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let release = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("release");
        succeed(Command::new("make").arg("-C").arg(&root).args(["--no-print-directory", "build-installed"]));
        let mut build = Command::new(root.join("benches/build-collbench.sh"));
        succeed(build.arg(&release).arg("no such directory of rivals"));
        release
    })
}

/// Runs a tool without traces of make.
fn succeed(command: &mut Command) {
    for name in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS"] {
        command.env_remove(name);
    }
    let output = command.stdin(Stdio::null()).output().expect("the tool is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// `collbench` with these words, on so many ranks, behind `prefix`.
fn collbench(ranks: usize, prefix: &[&str], words: &str) -> Outcome {
    let mut command = Command::new(release().join("han"));
    command.args(["run", "-n", &ranks.to_string(), "--timeout", "300", "--"]).args(prefix);
    command.arg(release().join("collbench/han")).args(words.split_whitespace());
    job::run(&mut command).expect("han is there")
}

#[test]
fn every_way_of_measuring_is_verified() {
    let ways = [
        ("", "osu"),
        ("--loop --rotate-roots --alloc shared", "loop rotating roots"),
        ("--cold --buffers 3", "osu cold 3 buffers"),
        ("--cold --in-place --rotate-roots --dtype f64", "osu cold f64 rotating roots in place"),
        ("--loop --in-place --buffers 2 --dtype f64", "loop f64 in place 2 buffers"),
    ];
    for ranks in [1, 2, 3] {
        for (words, form) in ways {
            let words = format!("barrier,bcast,reduce,allreduce --sizes {SIZES} --ms 0.2 {words}");
            let outcome = collbench(ranks, &[], &words);
            assert_eq!(outcome.failure, None, "{words}");
            let sizes: Vec<usize> = outcome.rows.iter().map(|row| row.bytes).collect();
            let of_each =
                if words.contains("f64") { [8, 8, 1024, 40000, 100_000] } else { [4, 12, 1024, 40000, 100_000] };
            assert_eq!(sizes, [&[0][..], &of_each, &of_each, &of_each].concat(), "{words}");
            let right = outcome.rows.iter().all(|row| row.verified && row.ranks == ranks && row.form() == form);
            assert!(right && outcome.rows.iter().all(|row| row.us_min <= row.us_max), "{words}: {:?}", outcome.rows);
        }
    }
}

/// A library that spoils the last element of a collective's result on the last rank, from the second
/// call on: the check before timing passes, those that follow must not.
const SPOILER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <han.h>
static void spoil(void *buffer, size_t count, han_comm_t comm) {
    static int calls;
    int rank, size;
    han_comm_rank(comm, &rank);
    han_comm_size(comm, &size);
    if (rank == size - 1 && count > 1000 && ++calls > 1) ((float *)buffer)[count - 1] += 1;
}
int han_bcast(void *buffer, size_t count, han_datatype_t type, int root, han_comm_t comm) {
    int (*real)(void *, size_t, han_datatype_t, int, han_comm_t) = dlsym(RTLD_NEXT, "han_bcast");
    int error = real(buffer, count, type, root, comm);
    spoil(buffer, count, comm);
    return error;
}
int han_allreduce(const void *send, void *receive, size_t count, han_datatype_t type, han_op_t op, han_comm_t comm) {
    int (*real)(const void *, void *, size_t, han_datatype_t, han_op_t, han_comm_t) = dlsym(RTLD_NEXT, "han_allreduce");
    int error = real(send, receive, count, type, op, comm);
    spoil(receive, count, comm);
    return error;
}
"#;

#[test]
fn wrong_results_are_found_and_fail_the_run() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (source, library) = (directory.path().join("spoiler.c"), directory.path().join("spoiler.so"));
    fs::write(&source, SPOILER).expect("there is room");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../han/capi/include");
    let mut compile = Command::new("cc");
    succeed(compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-I").arg(include));
    let preload = format!("LD_PRELOAD={}", library.display());
    let words = "bcast,reduce,allreduce --sizes 64,8000 --ms 0.2";
    let outcome = collbench(2, &["env", &preload], words);
    let wrong: Vec<_> =
        outcome.rows.iter().filter(|row| !row.verified).map(|row| (row.coll.as_str(), row.bytes)).collect();
    assert_eq!(wrong, [("bcast", 8000), ("allreduce", 8000)]);
    assert_eq!(outcome.failure.as_deref(), Some("wrong result of bcast at 8000 bytes"));
    let mut shell = Command::new(release().join("han"));
    shell.args(["run", "-n", "2", "--", "env", &preload]).arg(release().join("collbench/han"));
    let status = shell.args(words.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert_eq!(status.expect("han is there").code(), Some(1));
}

#[test]
fn wrong_arguments_are_refused_with_the_right_ones() {
    for (words, said) in [
        ("gather", "choose of: barrier bcast reduce allreduce"),
        ("bcast --sizes 0", "must be a number from 1"),
        ("bcast --repeats 4", "must be a number from 5"),
        ("bcast --alloc stack", "choose of: malloc shared register"),
        ("bcast --cold --loop", "only one of --loop, --pair and --cold"),
        ("--sizes 4", "usage: collbench COLL"),
    ] {
        let mut command = Command::new(release().join("collbench/han"));
        let output = command.args(words.split_whitespace()).output().expect("it was built");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(said), "{words}: {text}");
    }
}

#[test]
fn applications_say_what_bench_applications_reads() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data");
    let places = Places {
        han: release().join("han"),
        programs: release().join("collbench"),
        rivals: "no such directory".into(),
        testbed: "no such script".into(),
    };
    let han = &contestants::all(&["malloc".to_owned()])[0];
    for application in applications::ALL {
        let job = application.job(han, &places, &data, 3, None);
        let (total_s, communicating_s, result) =
            application.run(&mut han.start(&places, &job, 2, 120)).expect("it runs on three ranks");
        assert!(0.0 < communicating_s && communicating_s < total_s, "{communicating_s} of {total_s}");
        assert!(result.contains("distances: ") || result.contains("accuracy "), "{result}");
    }
}
