//! The private installation, compilers and launchers.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// What a program is given to end; only a hang takes so long.
const TIMEOUT_SECONDS: &str = "300";
/// What the others are given to end after a failure.
const GRACE_SECONDS: &str = "120";

pub(crate) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a tool and gives its standard output; if it fails, so does the test, with all it said.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Runs a tool in an environment without traces of Cargo, Make and launchers.
pub(crate) fn run(command: &mut Command) -> Output {
    for name in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PMI_FD", "PMI_PORT", "PMI_RANK", "PMI_SIZE"] {
        command.env_remove(name);
    }
    match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let tool = command.get_program().to_string_lossy();
            panic!("{tool} is missing: run `make deps`")
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// `make install` or `make uninstall` with this prefix and these further arguments.
pub(crate) fn make(target: &str, prefix: &Path, arguments: &[&str]) {
    let mut make = Command::new("make");
    make.arg("-C").arg(source("../..")).args(["--no-print-directory", target]);
    succeed(make.arg(format!("PREFIX={}", prefix.display())).args(arguments));
}

/// The prefix that all tests share, installed once.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let _ = std::fs::remove_dir_all(&prefix);
        make("install", &prefix, &[]);
        std::fs::create_dir_all(programs()).unwrap();
        prefix
    })
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs")
}

/// What `pkg-config` says about the installed library.
pub(crate) fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    let flags = succeed(command.args(arguments).arg("han"));
    flags.split_whitespace().map(str::to_owned).collect()
}

/// The flags for a program that is dynamic, but has libhan within.
pub(crate) fn with_archive() -> Vec<String> {
    let mut flags = pkg_config(&["--static", "--cflags", "--libs"]);
    let archive = prefix().join("lib/libhan.a").display().to_string();
    *flags.iter_mut().find(|flag| *flag == "-lhan").unwrap() = archive;
    flags
}

/// Compiles a source file against the installed library into a program of this name.
pub(crate) fn compile(compiler: &str, file: &str, name: &str, flags: &[&str], libraries: &[String]) -> PathBuf {
    let program = programs().join(name);
    prefix(); // makes the directory
    let mut command = Command::new(compiler);
    command.current_dir(programs()).args(flags).arg(source(file)).arg("-o").arg(&program);
    succeed(command.args(libraries));
    program
}

/// Compiles as the documentation tells users to: with `$(pkg-config --cflags --libs han)`.
pub(crate) fn compile_shared(compiler: &str, file: &str, name: &str, flags: &[&str]) -> PathBuf {
    compile(compiler, file, name, flags, &pkg_config(&["--cflags", "--libs"]))
}

/// `han run -n RANKS -- PROGRAM ARGUMENTS`; however slow they are, survivors of a failure say what they saw.
pub(crate) fn han_run(ranks: usize, program: &Path, arguments: &[&str]) -> Command {
    han_run_on(1, ranks, program, arguments)
}

/// The same on ranks of so many nodes, all of them this machine.
pub(crate) fn han_run_on(nodes: usize, ranks: usize, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(prefix().join("bin/han"));
    let (nodes, ranks) = (nodes.to_string(), ranks.to_string());
    command.args(["run", "-n", &ranks, "--nodes", &nodes]);
    command.args(["--timeout", TIMEOUT_SECONDS, "--grace", GRACE_SECONDS, "--"]);
    command.arg(program).args(arguments);
    command
}

/// `mpiexec.hydra -n RANKS PROGRAM`.
pub(crate) fn hydra(ranks: usize, program: &Path) -> Command {
    let mut command = Command::new("mpiexec.hydra");
    command.env("MPIEXEC_TIMEOUT", TIMEOUT_SECONDS);
    command.args(["-n", &ranks.to_string()]).arg(program);
    command
}

/// Runs a program on 1 to 4 ranks under `han run` and on 3 under Hydra; each time it must say that it
/// has passed.
pub(crate) fn passes(program: &Path) {
    let runs = (1..=4).map(|ranks| (ranks, han_run(ranks, program, &[])));
    for (ranks, mut command) in runs.chain([(3, hydra(3, program))]) {
        let text = succeed(&mut command);
        assert_eq!(text.trim(), format!("passed on {ranks} ranks"), "{command:?}");
    }
}

/// Where the compiler may put the modules of a Fortran program, apart from those of the others.
pub(crate) fn module_directory(name: &str) -> PathBuf {
    let directory = programs().join("modules").join(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
