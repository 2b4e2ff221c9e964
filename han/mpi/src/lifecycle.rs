//! The beginning and the end of MPI in a program, and of this library.
#![allow(unsafe_code)] // Exports MPI's functions and calls the MPI library's.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use han::{Config, Context, Exchange};
use shm_core::say;

use crate::abi::{Abi, Word};
use crate::communicator::Communicators;
use crate::completion;
use crate::datatype::Datatypes;
use crate::deputy;
use crate::error::Errors;
use crate::exchange::Members;
use crate::export::export;
use crate::gate;
use crate::lengthy::wait_in;
use crate::operator::Operators;
use crate::presence::{self, Part, Presence};
use crate::process::{Ours, Process};
use crate::progress::Progress;
use crate::real::{Real, SUCCESS, library_version, real};
use crate::report::{self, Report};
use crate::request::Requests;
use crate::rules::{Group, Rules};

export! {
    fn MPI_Init, PMPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) {
        // SAFETY: the arguments are the caller's own.
        let code = unsafe { (real().init)(argc, argv) };
        begin(code)
    }

    fn MPI_Init_thread, PMPI_Init_thread(argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int) {
        // SAFETY: as above.
        let code = unsafe { (real().init_thread)(argc, argv, required, provided) };
        begin(code)
    }

    fn MPI_Finalize, PMPI_Finalize() {
        if !ENDS_WITH_SELF.load(Ordering::Relaxed) {
            leave();
        }
        // SAFETY: the program asks for it.
        unsafe { (real().finalize)() }
    }

    fn MPI_Session_finalize, PMPI_Session_finalize(session: *mut Word) {
        if !BEGUN.load(Ordering::Relaxed) {
            static ONCE: Once = Once::new();
            // MPI_Init may follow, so what kind of a program this is, is known when it exits.
            ONCE.call_once(|| {
                // SAFETY: the library stays where it is until then. Without room for it there is no line.
                unsafe { libc::atexit(exited) };
            });
        }
        wait_in!(c"PMPI_Session_finalize", (session => *mut Word))
    }
}

/// The program exits, which has had sessions.
extern "C" fn exited() {
    if !BEGUN.load(Ordering::Relaxed) && Part::own() != Part::Off && presence::is_first() {
        report::none("a program of MPI sessions alone has no MPI_COMM_WORLD");
        report::say_none();
    }
}

/// MPI has been initialised.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// What follows a successful initialisation of MPI; a library may do it by another of its functions that comes here.
fn begin(code: c_int) -> c_int {
    // Relaxed, here and below: MPI allows no other call at the same time.
    if code == SUCCESS && !BEGUN.swap(true, Ordering::Relaxed) {
        start(Abi::detect(real()));
    }
    code
}

/// Joins all ranks; if any of them cannot, all collectives are the MPI's.
fn start(abi: Abi) {
    let (comm, thread_multiple) = (abi.comm_world, abi.thread_multiple);
    let Some(world) = World::find(&abi) else { return };
    let leave = |why: &str| {
        if world.rank == 0 {
            say(&format!("libhan_mpi: all collectives are left to the MPI: {why}"));
            report::none("all collectives are left to the MPI");
        }
    };
    if world.size == 1 {
        if Part::own() != Part::Off {
            tell_of_launcher();
            report::none("one rank has nobody to communicate with");
        }
        return;
    }
    match presence::meet(comm, world.byte, world.rank, world.size) {
        Ok(Presence::All) => {}
        Ok(Presence::Off) => return,
        Ok(Presence::Refused(why)) | Err(why) => return leave(&why),
    }
    // SAFETY: MPI is initialised, and there is room for a number.
    let level = Real::number(|level| unsafe { (real().query_thread)(level) });
    let is_multiple = level == Some(thread_multiple);
    let (config, rules) = world.configured().unwrap_or_else(|why| refuse(comm, world.rank, &why));
    let joined = join(abi, &world, config, rules, is_multiple);
    match world.succeed(joined.as_ref().map(|_| ()).map_err(Clone::clone)).and(joined) {
        Ok(process) => {
            let (own, is_over_nodes) = (process.abi.comm_self, process.context.node_count() > 1);
            gate::open(process, is_multiple, is_over_nodes);
            if is_over_nodes {
                deputy::look_after_network();
            }
            ENDS_WITH_SELF.store(end_with(own), Ordering::Relaxed);
        }
        Err(why) => leave(&why),
    }
}

/// Says so if this process is one of several for its launcher, which its MPI has not understood.
fn tell_of_launcher() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<usize>().ok());
    if let (Some(0), Some(size @ 2..)) = (number("PMI_RANK"), number("PMI_SIZE")) {
        say(&format!(
            "libhan_mpi: {size} processes were started, and each is alone in its MPI_COMM_WORLD: this MPI does not \
             understand their launcher's PMI; use the MPI's own mpirun or mpiexec"
        ));
    }
}

/// A mistake in the environment ends the program, as it ends han's own.
fn refuse(comm: Word, rank: usize, why: &str) -> ! {
    if rank == 0 {
        say(&format!("libhan_mpi: {why}"));
        // Hydra drops what it has not yet passed on when a rank aborts.
        std::thread::sleep(Duration::from_secs(1));
    }
    // Before anybody aborts, rank 0 has said why.
    // SAFETY: MPI is initialised.
    unsafe { (real().barrier)(comm) };
    // SAFETY: as above.
    unsafe { (real().abort)(comm, 1) };
    std::process::exit(1)
}

/// The ranks of `MPI_COMM_WORLD`.
struct World {
    comm: Word,
    byte: Word,
    rank: usize,
    size: usize,
}

impl World {
    fn find(abi: &Abi) -> Option<Self> {
        let (comm, byte) = (abi.comm_world, abi.byte);
        // SAFETY: MPI is initialised, and there is room for a number.
        let rank = Real::number(|rank| unsafe { (real().comm_rank)(comm, rank) })?;
        // SAFETY: as above.
        let size = Real::number(|size| unsafe { (real().comm_size)(comm, size) })?;
        Some(Self { comm, byte, rank: usize::try_from(rank).ok()?, size: usize::try_from(size).ok()? })
    }

    fn members(&self) -> Result<Members, String> {
        Members::new(self.comm, self.byte, self.rank, (0..self.size).collect())
    }

    /// What is configured, if it is understood on all ranks, and this library's part is the same.
    fn configured(&self) -> Result<(Config, Rules), String> {
        let own = Config::from_environment().map_err(|e| e.to_string());
        let own = own.and_then(|config| Ok((config, Rules::from_environment()?)));
        self.succeed(own.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let (config, rules) = own?;
        let texts = self.members()?.allgather(rules.to_string().as_bytes()).map_err(|e| e.to_string())?;
        match texts.iter().position(|text| *text != texts[0]) {
            Some(rank) => {
                let [first, other] = [0, rank].map(|rank| String::from_utf8_lossy(&texts[rank]).into_owned());
                Err(format!("set the same on all ranks: rank 0 has {first}, rank {rank} has {other}"))
            }
            None => Ok((config, rules)),
        }
    }

    /// Whether any rank says so.
    fn any(&self, own: bool) -> Result<bool, String> {
        let words = self.members()?.allgather(&[own.into()]).map_err(|e| e.to_string())?;
        Ok(words.iter().any(|word| *word == [1]))
    }

    /// An error if any rank has one: that of the first.
    fn succeed(&self, own: Result<(), String>) -> Result<(), String> {
        let words = self.members()?.allgather(own.err().unwrap_or_default().as_bytes()).map_err(|e| e.to_string())?;
        match words.iter().position(|why| !why.is_empty()) {
            Some(rank) => Err(format!("rank {rank}: {}", String::from_utf8_lossy(&words[rank]))),
            None => Ok(()),
        }
    }
}

fn join(abi: Abi, world: &World, mut config: Config, rules: Rules, is_multiple: bool) -> Result<Process, String> {
    config.settings.attentive = true;
    let has_threads = world.any(is_multiple)?;
    let rules = if config.settings.reproducible { rules.reproducible() } else { rules };
    let mut members = world.members()?;
    members.find_nodes()?;
    let context = Context::with(Box::new(members), config).map_err(|e| e.to_string())?;
    completion::poll_as(context.job().patience().spins);
    let progress = Progress::new(abi.flavour, world.size)?;
    let meanwhile = progress.clone();
    context.meanwhile(move || meanwhile.look());
    let (communicator, mpi) = (context.world().clone(), library_version());
    let (several_nodes, own_cores) = (context.node_count() > 1, context.job().own_cores());
    let passed = rules.of(Group { ranks: world.size, several_nodes, own_cores }, &mpi);
    let requests = Requests::new(&abi)?;
    let finds_aliases = abi.finds_aliases(requests.silent);
    Ok(Process {
        communicators: Communicators::new(world.comm, Ours::new(world.comm, communicator, passed))?,
        datatypes: Datatypes::new(&abi, requests.silent),
        requests,
        operators: Operators::new(&abi),
        errors: Errors::new(&abi),
        finds_aliases,
        has_threads,
        report: rules.report.then(Report::default),
        rules,
        mpi,
        progress,
        context,
        abi,
    })
}

/// The job is left when the attributes of `MPI_COMM_SELF` go.
static ENDS_WITH_SELF: AtomicBool = AtomicBool::new(false);

/// Sees to it that the job is left in `MPI_Finalize` after the program's last words. The first thing that MPI does there is
/// to delete the attributes of `MPI_COMM_SELF`, the last one first; the program's are younger than this one, and when
/// one of theirs is deleted, the program may still call MPI.
fn end_with(own: Word) -> bool {
    extern "C" fn last(_: Word, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
        leave();
        SUCCESS
    }
    // SAFETY: MPI is initialised, and the value means nothing.
    let set = |keyval| unsafe { (real().comm_set_attr)(own, keyval, ptr::null_mut()) } == SUCCESS;
    real().comm_keyval(last).is_some_and(set)
}

fn leave() {
    // While the gate is open: others may still need what this rank has sent, and the deputy sees to that.
    gate::inside(say_report);
    match gate::close() {
        Some(process) => end(process),
        None => report::say_none(),
    }
}

fn say_report(process: &Process) {
    if let (Some(report), Some(world)) = (&process.report, World::find(&process.abi)) {
        match world.members().and_then(|mut members| report.table(&mut members, &process.mpi)) {
            Ok(table) if world.rank == 0 => say(table.trim_end()),
            Ok(_) => {}
            Err(why) => say(&format!("libhan_mpi: no report: {why}")),
        }
    }
}

/// Leaves the job, with everything that was made at the start and later.
fn end(process: Process) {
    let Process { requests, communicators, datatypes, progress, errors, context, .. } = process;
    requests.end();
    drop((communicators, datatypes));
    match context.finalize() {
        Err(error) if !errors.have_been_told() => say(&format!("libhan_mpi: {error}")),
        _ => {}
    }
    drop(progress);
}
