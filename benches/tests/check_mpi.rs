//! `check-mpi` with Debian's MPICH: programs print the same with and without libhan_mpi.so, and differences are found.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The release directory with `han` and `libhan_mpi.so` in it.
fn release() -> &'static Path {
    static RELEASE: OnceLock<PathBuf> = OnceLock::new();
    RELEASE.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--release", "--quiet", "-p", "han-mpi", "-p", "han-cli"]);
        let output = build.current_dir(root()).stdin(Stdio::null()).output().expect("cargo is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("release")
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What `check-mpi` says of these programs with this library.
fn check(library: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_check-mpi"));
    command.args(["--mpis", "debian-mpich", "--nodes", "0", "--rivals", "none", "--release"]).arg(release());
    command.arg("--library").arg(library).args(words);
    command.current_dir(root()).stdin(Stdio::null()).output().expect("it was built")
}

#[test]
fn programs_print_the_same_with_the_library() {
    // The others take longer than tests should: MPICH 4 never gives a core up to the rank that it waits for.
    let programs = "derived,errors,finalize,largecounts,nonblocking,persistent,typeattributes,module08";
    let output = check(&release().join("libhan_mpi.so"), &["--ranks", "2", "--programs", programs]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("8 comparisons, 0 failed, 0 left out"), "{said}");
}

#[test]
fn a_program_that_the_mpi_alone_never_finishes_is_left_out() {
    let sources = tempfile::tempdir().expect("a temporary directory");
    let header = std::fs::copy(root().join("han/mpi/check/check.h"), sources.path().join("check.h"));
    assert!(header.is_ok_and(|bytes| bytes > 0));
    let endless = r#"
        #include "check.h"
        #include <unistd.h>
        int main(int argc, char **argv) {
            start(&argc, &argv);
            while (ranks > 1) sleep(1);
            return finish();
        }"#;
    std::fs::write(sources.path().join("endless.c"), endless).expect("there is room");
    let place = sources.path().display().to_string();
    let words = ["--ranks", "1,2", "--timeout", "20", "--sources", &place];
    // The second time it is known.
    for _ in 0..2 {
        let output = check(&release().join("libhan_mpi.so"), &words);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("left out on 2 ranks: the MPI alone does not finish it in 20 s"), "{said}");
        assert!(said.contains("1 comparisons, 0 failed, 1 left out"), "{said}");
    }
    let kept = std::fs::read_to_string(release().join("mpi-programs/debian-mpich/endless-2.endless"));
    assert_eq!(kept.expect("it is kept beside the program"), "20");
}

#[test]
fn a_library_that_takes_nothing_or_spoils_results_is_found() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let spoiler = r#"
        int PMPI_Bcast(void *, int, unsigned, int, unsigned);
        int MPI_Bcast(void *buffer, int count, unsigned type, int root, unsigned comm) {
            int code = PMPI_Bcast(buffer, count, type, root, comm);
            if (count == 1) *(char *)buffer = 9;
            return code;
        }"#;
    for (name, source, said) in [
        ("idle", "int nothing;", "on 2 ranks: the library took none of the calls"),
        ("spoiler", spoiler, "`note 0 split 0: 0` is with the library `note 0 split 0: 9`"),
    ] {
        let (file, library) = (directory.path().join(name).with_extension("c"), directory.path().join(name));
        std::fs::write(&file, source).expect("there is room");
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).status();
        assert!(compiled.expect("a C compiler").success());
        let output = check(&library, &["--ranks", "2", "--programs", "finalize"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && text.contains(said), "{name}: {text}");
    }
}
