//! Programs, how they are run, and what is read from what they print.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds that a program is given; only a hang takes so long.
const TIMEOUT_SECONDS: &str = "300";

/// Compiles `tests/c/FILE` for Debian's MPICH.
pub(crate) fn compile(file: &str, flags: &[&str]) -> PathBuf {
    compile_with("mpicc.mpich", &format!("c/{file}"), flags)
}

/// Compiles `tests/FILE` into a program that no other test uses.
pub(crate) fn compile_with(compiler: &str, file: &str, flags: &[&str]) -> PathBuf {
    let test = std::thread::current().name().unwrap_or("test").replace("::", "-");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload").join(test);
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(Path::new(file).file_stem().unwrap());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let mut command = Command::new(compiler);
    command.current_dir(&folder).args(["-O1", "-Wall"]).args(flags).arg(source).arg("-o").arg(&program);
    let (text, succeeded) = output(&mut command);
    assert!(succeeded, "{command:?}: {text}");
    program
}

/// The library, which Cargo has built for these tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let release = test.parent().and_then(Path::parent).unwrap();
    let library = release.join("libhan_mpi.so");
    assert!(library.exists(), "{} is missing: cargo build --release -p han-mpi", library.display());
    library
}

/// What a command prints, and whether it succeeds.
fn output(command: &mut Command) -> (String, bool) {
    for name in ["PMI_FD", "PMI_PORT", "PMI_RANK", "PMI_SIZE"] {
        command.env_remove(name);
    }
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            (text.concat(), output.status.success())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("{} is missing: run `make deps`", command.get_program().display())
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// A program on some ranks, with the library unless it is [`alone`](Self::alone).
pub(crate) struct Run {
    command: Command,
    program: PathBuf,
    ranks: usize,
    library: Option<PathBuf>,
    /// Another library behind it.
    behind: Option<PathBuf>,
    argument: Option<String>,
}

impl Run {
    pub(crate) fn of(program: &Path, ranks: usize) -> Self {
        let mut command = Command::new("mpiexec.hydra");
        command.env("MPIEXEC_TIMEOUT", TIMEOUT_SECONDS);
        Self { command, program: program.into(), ranks, library: Some(library()), behind: None, argument: None }
    }

    pub(crate) fn with(mut self, variable: &str, value: &str) -> Self {
        self.command.env(variable, value);
        self
    }

    pub(crate) fn alone(self) -> Self {
        Self { library: None, ..self }
    }

    pub(crate) fn behind(self, library: &Path) -> Self {
        Self { behind: Some(library.into()), ..self }
    }

    pub(crate) fn argument(self, argument: &str) -> Self {
        Self { argument: Some(argument.to_owned()), ..self }
    }

    fn output(mut self) -> (String, bool) {
        self.command.args(["-n", &self.ranks.to_string()]);
        if let Some(library) = &self.library {
            let behind = self.behind.as_ref().map_or_else(String::new, |behind| format!(":{}", behind.display()));
            self.command.args(["-genv", "LD_PRELOAD"]).arg(format!("{}{behind}", library.display()));
        }
        self.command.arg(&self.program).args(&self.argument);
        output(&mut self.command)
    }

    /// The program says that it has passed.
    pub(crate) fn passes(self) -> Report {
        let expected = format!("passed on {} ranks", self.ranks);
        let name = format!("{} on {} ranks", self.program.display(), self.ranks);
        let (text, succeeded) = self.output();
        assert!(succeeded && text.lines().any(|line| line.trim() == expected), "{name}: {text}");
        Report { text }
    }

    /// The program fails; what it says.
    pub(crate) fn fails(self) -> String {
        let (text, succeeded) = self.output();
        assert!(!succeeded, "{text}");
        text
    }
}

/// What a program has printed, with the table of `HAN_MPI_REPORT`.
pub(crate) struct Report {
    pub(crate) text: String,
}

/// A line of the table.
pub(crate) struct Line {
    pub(crate) taken: u64,
    pub(crate) bytes: u64,
    pub(crate) reasons: String,
}

impl Report {
    pub(crate) fn line(&self, collective: &str) -> Line {
        let prefix = format!("han: {collective} ");
        let line = self.text.lines().find_map(|line| line.strip_prefix(&prefix));
        let words: Vec<&str> =
            line.unwrap_or_else(|| panic!("no {collective}: {}", self.text)).split_whitespace().collect();
        let number = |index: usize| words[index].parse().unwrap();
        Line { taken: number(0), bytes: number(1), reasons: words[4..].join(" ") }
    }
}
