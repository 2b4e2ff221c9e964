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

/// Where the files of this test are, and no other's.
fn folder() -> PathBuf {
    let test = std::thread::current().name().unwrap_or("test").replace("::", "-");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload").join(test);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Compiles `tests/FILE` into a program that no other test uses.
pub(crate) fn compile_with(compiler: &str, file: &str, flags: &[&str]) -> PathBuf {
    let folder = folder();
    let program = folder.join(Path::new(file).file_stem().unwrap());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let mut command = Command::new(compiler);
    command.current_dir(&folder).args(["-O1", "-Wall"]).args(flags).arg(source).arg("-o").arg(&program);
    let (text, succeeded) = output(&mut command);
    assert!(succeeded, "{command:?}: {text}");
    program
}

/// What Debian's MPICH tells of itself.
fn told(option: &str) -> String {
    let (text, succeeded) = output(Command::new("mpicc.mpich").arg(option));
    assert!(succeeded, "mpicc.mpich {option}: {text}");
    text.trim().to_owned()
}

/// The option by which a compiler finds its header, and not its library.
pub(crate) fn header() -> String {
    let words = told("-compile_info");
    words.split_whitespace().find(|word| word.starts_with("-I")).unwrap().to_owned()
}

/// Puts a copy of it where the test's programs are compiled, which goes by the name of its file: one of the same length.
pub(crate) fn copy_mpi(name: &str) {
    let own = "libmpich.so.12";
    assert_eq!(name.len(), own.len());
    let mut bytes = std::fs::read(told(&format!("-print-file-name={own}"))).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - own.len()).filter(|&at| bytes[at..].starts_with(own.as_bytes())).collect();
    for at in places {
        bytes[at..at + own.len()].copy_from_slice(name.as_bytes());
    }
    std::fs::write(folder().join(name), bytes).unwrap();
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
    before: Option<PathBuf>,
    argument: Option<String>,
    /// A variable of rank 0 alone.
    first: Option<[String; 2]>,
}

impl Run {
    pub(crate) fn of(program: &Path, ranks: usize) -> Self {
        let mut command = Command::new("mpiexec.hydra");
        command.env("MPIEXEC_TIMEOUT", TIMEOUT_SECONDS);
        Self {
            command,
            program: program.into(),
            ranks,
            library: Some(library()),
            before: None,
            argument: None,
            first: None,
        }
    }

    pub(crate) fn with(mut self, variable: &str, value: &str) -> Self {
        self.command.env(variable, value);
        self
    }

    pub(crate) fn alone(self) -> Self {
        Self { library: None, ..self }
    }

    /// With a variable that only rank 0 has.
    pub(crate) fn first(self, variable: &str, value: &str) -> Self {
        Self { first: Some([variable.to_owned(), value.to_owned()]), ..self }
    }

    /// With the library on rank 0 alone.
    pub(crate) fn partly(self) -> Self {
        let path = library().display().to_string();
        self.alone().first("LD_PRELOAD", &path)
    }

    /// With one of the test's own between the library and the MPI.
    pub(crate) fn before(self, other: &Path) -> Self {
        Self { before: Some(other.into()), ..self }
    }

    /// As a module that the program opens.
    pub(crate) fn opening(self, module: &Path) -> Self {
        self.argument(&module.display().to_string())
    }

    pub(crate) fn argument(self, argument: &str) -> Self {
        Self { argument: Some(argument.to_owned()), ..self }
    }

    fn output(mut self) -> (String, bool) {
        let libraries: Vec<String> =
            self.library.iter().chain(&self.before).map(|path| path.display().to_string()).collect();
        if !libraries.is_empty() {
            self.command.args(["-genv", "LD_PRELOAD", &libraries.join(":")]);
        }
        let mut ranks = self.ranks;
        if let Some([variable, value]) = &self.first {
            self.command.args(["-n", "1", "-env", variable, value]).arg(&self.program).args(&self.argument).arg(":");
            ranks -= 1;
        }
        self.command.args(["-n", &ranks.to_string()]).arg(&self.program).args(&self.argument);
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
