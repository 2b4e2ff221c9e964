//! What the library keeps between calls, and the way of a collective through it.

use std::cell::OnceCell;
use std::ffi::c_int;
use std::rc::Rc;

use han::{Call, Communicator, Context};

use crate::abi::{Abi, Word};
use crate::arguments::{Arguments, Barrier, Prepared, Seat};
use crate::communicator::Communicators;
use crate::completion;
use crate::datatype::Datatypes;
use crate::deputy;
use crate::error::Errors;
use crate::gate;
use crate::handler::LastHandler;
use crate::operator::Operators;
use crate::progress::{self, Progress};
use crate::real::SUCCESS;
use crate::report::Report;
use crate::request::Requests;
use crate::rules::{Group, Passed, Rules, Why};
use han::Collective;

/// The state behind the [gate](crate::gate), from the end of `MPI_Init` to the beginning of `MPI_Finalize`.
///
/// Fields are dropped from top to bottom: nothing outlives the context.
pub(crate) struct Process {
    pub(crate) requests: Requests,
    pub(crate) communicators: Communicators,
    pub(crate) abi: Abi,
    pub(crate) datatypes: Datatypes,
    pub(crate) operators: Operators,
    pub(crate) rules: Rules,
    /// What the MPI library calls itself.
    pub(crate) mpi: String,
    pub(crate) errors: Errors,
    /// The MPI reports a buffer that is input and result of a reduction.
    pub(crate) finds_aliases: bool,
    /// On some rank, threads of the program's may call at the same time.
    pub(crate) has_threads: bool,
    pub(crate) progress: Progress,
    pub(crate) report: Option<Report>,
    pub(crate) context: Context,
}

/// A communicator of the program's whose collectives are carried out here.
pub(crate) struct Ours {
    /// The program's handle, until it frees the communicator.
    handle: Word,
    /// The error handler, once it has.
    pub(crate) last_handler: OnceCell<LastHandler>,
    pub(crate) communicator: Communicator,
    /// What the MPI does all the same.
    pub(crate) passed: Passed,
}

impl Ours {
    pub(crate) fn new(handle: Word, communicator: Communicator, passed: Passed) -> Self {
        Self { handle, last_handler: OnceCell::new(), communicator, passed }
    }

    /// This rank's place.
    #[inline]
    pub(crate) fn seat(&self) -> Seat {
        Seat { rank: self.communicator.rank(), size: self.communicator.size() }
    }

    /// An error if a call of that many bytes is the MPI's.
    #[inline]
    pub(crate) fn allows(&self, collective: Collective, bytes: usize) -> Result<(), Why> {
        let lengths = &self.passed[collective.index()];
        if lengths.iter().any(|lengths| lengths.contains(&bytes)) { Err(Why::Rule) } else { Ok(()) }
    }
}

impl Process {
    /// The communicator behind a handle, if its collectives are carried out here.
    #[inline]
    pub(crate) fn ours(&self, comm: Word, arguments: impl Arguments + Copy) -> Result<Rc<Ours>, Why> {
        let entry = self.communicators.find(self, self.abi.flavour.word(comm))?;
        entry.standing(self, arguments).map(Rc::clone)
    }

    /// The same for a call that must not wait for others.
    pub(crate) fn ours_already(&self, comm: Word, arguments: &impl Arguments) -> Result<Rc<Ours>, Why> {
        let entry = self.communicators.find(self, self.abi.flavour.word(comm))?;
        entry.standing_already(self, arguments).map(Rc::clone)
    }

    /// The same for calls that will be repeated.
    pub(crate) fn ours_for_good(&self, comm: Word, arguments: &impl Arguments) -> Result<Rc<Ours>, Why> {
        let entry = self.communicators.find(self, self.abi.flavour.word(comm))?;
        entry.standing_for_good(self, arguments).map(Rc::clone)
    }

    /// Another of han's communicators with the ranks of `comm`. Collective over them; succeeds on all or on none.
    pub(crate) fn another(&self, comm: Word) -> Result<Communicator, Why> {
        self.communicators.find(self, self.abi.flavour.word(comm))?.another(self)
    }

    /// Looks at a communicator that the program has just made, with all its ranks.
    pub(crate) fn made(&self, comm: Word) {
        if self.rules.after == 0 && comm != self.abi.comm_null {
            // Whoever carries its collectives out, the decision is kept.
            let _ = self.ours(comm, Barrier);
        }
    }

    /// What is passed on by rule of the calls of ranks `world`.
    pub(crate) fn passed_by_rule(&self, world: &[usize]) -> Passed {
        let nodes = self.context.nodes();
        let several_nodes = world.iter().any(|&rank| nodes[rank] != nodes[world[0]]);
        let own_cores = self.context.job().own_cores();
        self.rules.of(Group { ranks: world.len(), several_nodes, own_cores }, &self.mpi)
    }

    /// Carries out a call and waits for it; gives the code that the MPI function returns.
    #[inline]
    pub(crate) fn carry_out(&self, ours: &Ours, prepared: Prepared) -> c_int {
        let Prepared { call, kept } = prepared;
        self.progress.wait_begins();
        let outcome =
            if gate::is_multiple() { self.run_beside_others(ours, call) } else { ours.communicator.run(&call) };
        progress::is_ahead();
        deputy::has_sent();
        match outcome {
            Ok(()) => match kept.finish() {
                SUCCESS => SUCCESS,
                code => self.hand(ours, code),
            },
            Err(error) => self.raise(ours, &error),
        }
    }

    /// Tells of a failure and calls the communicator's error handler; gives the code to return if it comes back.
    #[cold]
    pub(crate) fn raise(&self, ours: &Ours, error: &han::Error) -> c_int {
        self.errors.tell(error);
        self.hand(ours, self.errors.describe(error))
    }

    /// Calls the communicator's error handler with a code; gives the one to return if it comes back. The caller is inside
    /// the gate, and what it knew before may have changed.
    #[cold]
    pub(crate) fn hand(&self, ours: &Ours, code: c_int) -> c_int {
        self.communicators.notice_freed();
        let Some(handler) = ours.last_handler.get() else { return self.errors.hand(ours.handle, code) };
        handler.stand_in(self.requests.silent).map_or(code, |comm| self.errors.hand(comm.0, code))
    }

    /// As `run`, but lets other threads in while it waits.
    fn run_beside_others(&self, ours: &Ours, call: Call<'static>) -> han::Result<()> {
        let mut request = ours.communicator.start(call)?;
        loop {
            for _ in 0..completion::polls() {
                if request.test()? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            gate::outside(|| {
                self.progress.look();
                std::thread::yield_now();
            });
        }
    }

    /// Notes a call that goes on to the MPI.
    #[cold]
    pub(crate) fn passed(&self, collective: Collective, why: Why) {
        if let Some(report) = &self.report {
            report.passed(collective, why);
        }
    }
}
