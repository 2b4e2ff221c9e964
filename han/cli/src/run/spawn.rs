//! Starting the ranks' processes.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use shm_core::sys::process;

use super::output::Source;
use super::placement::{Bind, Binder, Place, places};
use super::{Args, prefix_words};

/// The job's processes and our ends of their connections, all by rank.
#[derive(Default)]
pub(super) struct Spawned {
    pub(super) pids: Vec<Pid>,
    pub(super) pmi: Vec<UnixStream>,
    pub(super) stdout: Vec<Source>,
    pub(super) stderr: Vec<Source>,
}

/// Why the job could not be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error("cannot start {program:?}: {}", why_not_found(program))]
    NotFound { program: String },
    #[error("cannot start {program:?}: it is not an executable file, or a directory on the way is closed to you")]
    NotExecutable { program: String },
    #[error("cannot start rank {rank} ({program:?}): {source}{}", limit(source))]
    Rank { rank: usize, program: String, source: io::Error },
    #[error("cannot bind rank {rank} to a processor (--bind none leaves it unbound): {source}")]
    Bind { rank: usize, source: io::Error },
    #[error("cannot start a job of {ranks} ranks: {source}")]
    Job { ranks: usize, source: io::Error },
    #[error("{ranks} ranks need {needed} open files here, but the limit (ulimit -Hn) is {limit}")]
    Files { ranks: usize, needed: u64, limit: u64 },
}

impl SpawnError {
    /// The code by which a shell would tell it.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            _ => 1,
        }
    }
}

/// Starts all ranks; on an error, those already started are in `spawned`.
pub(super) fn spawn_all(args: &Args, blocks: &[usize], spawned: &mut Spawned) -> Result<(), SpawnError> {
    let job_error = |source| SpawnError::Job { ranks: args.ranks, source };
    raise_file_limit(args.ranks)?;
    let binder = match args.bind {
        Bind::Core => Some(Binder::new().map_err(job_error)?),
        Bind::None => None,
    };
    for (rank, place) in places(blocks).into_iter().enumerate() {
        if let Some(binder) = &binder {
            binder.bind(rank).map_err(|source| SpawnError::Bind { rank, source })?;
        }
        spawn(args, rank, place, spawned)?;
    }
    binder.map_or(Ok(()), |binder| binder.unbind()).map_err(job_error)
}

fn spawn(args: &Args, rank: usize, place: Place, spawned: &mut Spawned) -> Result<(), SpawnError> {
    let (pmi, far) = inheritable_pair().map_err(|source| SpawnError::Job { ranks: args.ranks, source })?;
    let variables = variables(args, rank, place, far.as_raw_fd());
    let words = command_line(args, place, &variables);
    let program = words[0].to_string_lossy().into_owned();
    let rank_error = |source| SpawnError::Rank { rank, program: program.clone(), source };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if rank == 0 { Stdio::inherit() } else { nothing().map_err(rank_error)? });
    for (name, _) in env::vars_os().filter(|(name, _)| is_launchers(name)) {
        command.env_remove(name);
    }
    command.envs(variables);
    command.process_group(0);
    process::die_with_parent(&mut command, Signal::SIGKILL);
    process::unblock_signals(&mut command);
    let child = command.spawn().map_err(|source| match source.kind() {
        ErrorKind::NotFound => SpawnError::NotFound { program: program.clone() },
        ErrorKind::PermissionDenied => SpawnError::NotExecutable { program: program.clone() },
        _ => rank_error(source),
    })?;
    spawned.pids.push(Pid::from_raw(i32::try_from(child.id()).map_err(|e| rank_error(io::Error::other(e)))?));
    spawned.pmi.push(pmi);
    spawned.stdout.extend(child.stdout.map(|pipe| Source { rank: Some(rank), pipe: pipe.into() }));
    spawned.stderr.extend(child.stderr.map(|pipe| Source { rank: Some(rank), pipe: pipe.into() }));
    Ok(())
}

/// What tells a rank of its place in the job.
fn variables(args: &Args, rank: usize, place: Place, pmi: RawFd) -> [(&'static str, String); 7] {
    [
        ("PMI_FD", pmi.to_string()),
        ("PMI_SPAWNED", "0".to_owned()),
        ("PMI_RANK", rank.to_string()),
        ("PMI_ID", rank.to_string()),
        ("PMI_SIZE", args.ranks.to_string()),
        ("MPI_LOCALRANKID", place.local_rank.to_string()),
        ("MPI_LOCALNRANKS", place.local_size.to_string()),
    ]
}

/// The program and its arguments, behind the node's prefix if there is one, which may drop variables: they are set again
/// behind it, as a rank without them would take itself for a world of its own.
fn command_line(args: &Args, place: Place, variables: &[(&str, String)]) -> Vec<OsString> {
    let Some(prefix) = &args.node_exec else { return args.command.clone() };
    let variables = variables.iter().map(|(name, value)| format!("{name}={value}"));
    let words = prefix_words(prefix, place.node).chain(["env".to_owned()]).chain(variables);
    // To env a program whose name holds a `=` is one more variable.
    let is_hidden = args.command.first().is_some_and(|program| program.as_encoded_bytes().contains(&b'='));
    let shell: &[&str] = if is_hidden { &["sh", "-c", "exec \"$@\"", "sh"] } else { &[] };
    let words = words.chain(shell.iter().copied().map(str::to_owned)).map(OsString::from);
    words.chain(args.command.iter().cloned()).collect()
}

/// Input that ends at once.
fn nothing() -> io::Result<Stdio> {
    let file = File::open("/dev/null").map_err(|e| {
        let why = format!("cannot open /dev/null: {e}");
        io::Error::other(why)
    })?;
    Ok(file.into())
}

/// Which limit an error means.
fn limit(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => "; a limit of processes is reached (ulimit -u, or pids.max of a control group)",
        _ => "",
    }
}

/// What `ENOENT` means for this program.
fn why_not_found(program: &str) -> String {
    if !program.contains('/') {
        let here = Path::new(program).exists();
        let hint = if here { format!("; did you mean ./{program}?") } else { String::new() };
        return format!("there is no such program in PATH{hint}");
    }
    if !Path::new(program).exists() {
        return "there is no such file".to_owned();
    }
    match interpreter(program) {
        // In quotation marks a carriage return shows, which a script from another system has there.
        Some(interpreter) => format!("its interpreter {interpreter:?}, named in its first line, does not exist"),
        None => "the loader that it was linked for does not exist: it was built for another system".to_owned(),
    }
}

/// What the first line of a script says.
fn interpreter(program: &str) -> Option<String> {
    /// The kernel reads no more.
    const MOST_BYTES: u64 = 256;
    let mut start = Vec::new();
    File::open(program).ok()?.take(MOST_BYTES).read_to_end(&mut start).ok()?;
    let start = String::from_utf8_lossy(&start);
    let line = start.strip_prefix("#!")?.split('\n').next()?;
    line.split([' ', '\t']).find(|word| !word.is_empty()).map(str::to_owned)
}

/// Variables of a launcher that this one may itself run under, or of a rendezvous; they would contradict ours.
fn is_launchers(name: &std::ffi::OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let foreign: [&[u8]; 5] = [b"PMI_", b"PMIX_", b"HAN_RENDEZVOUS", b"HAN_RANK", b"HAN_SIZE"];
    foreign.iter().any(|start| name.starts_with(start))
}

/// A connection whose second end outlives `exec`; only this thread starts processes.
fn inheritable_pair() -> io::Result<(UnixStream, UnixStream)> {
    let (near, far) = UnixStream::pair()?;
    fcntl(&far, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok((near, far))
}

/// Allows as many open files as the ranks' connections need.
fn raise_file_limit(ranks: usize) -> Result<(), SpawnError> {
    /// A connection and two pipes.
    const FILES_PER_RANK: u64 = 3;
    const OTHER_FILES: u64 = 64;
    // Those that our parents have left open stay so.
    let inherited = fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let needed = FILES_PER_RANK * ranks as u64 + inherited + OTHER_FILES;
    let job_error = |e: nix::errno::Errno| SpawnError::Job { ranks, source: e.into() };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(job_error)?;
    if needed > hard {
        return Err(SpawnError::Files { ranks, needed, limit: hard });
    }
    if needed > soft {
        setrlimit(Resource::RLIMIT_NOFILE, needed, hard).map_err(job_error)?;
    }
    Ok(())
}
