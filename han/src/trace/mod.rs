//! `HAN_TRACE`: what each rank had under way and when, as a file for Chrome's and Perfetto's viewers and for `han trace`.
//!
//! A rank records spans in bounded memory and writes them to a file of its own, `FILE.rank-N`: once a second at most, and
//! when something fails, so that a job that is killed or hangs leaves what there was. At the end rank 0 puts the parts
//! together as `FILE`, and they are removed. Every file is valid at any time, as it is replaced as a whole.
//!
//! Without `HAN_TRACE` there is no [`Trace`], and whoever would record something asks for it once an operation.

mod clock;
mod finish;
mod part;
mod span;
mod start;
mod store;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use shm_core::sys::clock::now_ns;

pub use clock::{Alignment, Mark, Offset};
pub(crate) use span::{CallName, Label, Lane, What};
pub(crate) use start::start;
pub(crate) use store::Open;

use part::Card;
use span::{Ending, Span};
use store::Store;

use crate::files::{NewFile, replaceable};

/// Shortest time from one writing to the next.
const WRITE_EVERY_NS: u64 = 1_000_000_000;
/// Writing takes at most one part in so many of the time.
const WRITE_SHARE: u64 = 50;
/// Barriers by which clocks are compared.
const MARKS: usize = 16;

/// What this rank records.
pub(crate) struct Trace {
    /// The file of all ranks.
    path: PathBuf,
    /// This rank's.
    part: PathBuf,
    card: Card,
    several_clocks: bool,
    store: RefCell<Store>,
    write_at_ns: Cell<u64>,
    /// Why writing has failed, when it first did.
    trouble: RefCell<Option<String>>,
    is_finished: Cell<bool>,
    /// The call of the program that is being begun.
    begun: Cell<Option<CallName>>,
}

impl Trace {
    /// Notes that something begins now.
    pub(crate) fn begin(&self, lane: Lane, what: What) -> Open {
        self.store.borrow_mut().begin(lane, what, now_ns())
    }

    /// Notes that it has ended, or why it has failed.
    pub(crate) fn end<T, E: fmt::Display>(&self, open: Open, outcome: &std::result::Result<T, E>) {
        let now_ns = now_ns();
        let mut store = self.store.borrow_mut();
        let ending = match outcome {
            Ok(_) => Ending::Well,
            Err(error) => Ending::Failed(store.label(&error.to_string())),
        };
        store.end(open, ending, now_ns);
        drop(store);
        if outcome.is_err() {
            self.write(); // nobody knows whether the process lives on
        } else {
            self.look(now_ns);
        }
    }

    /// Notes that it has ended well.
    pub(crate) fn done(&self, open: Open) {
        self.end(open, &Ok::<_, Infallible>(()));
    }

    /// Does `work`, which begins the call `what`: tasks that are begun meanwhile know whose they are.
    pub(crate) fn within<T>(&self, what: &What, work: impl FnOnce() -> T) -> T {
        let outer = self.begun.replace(what.name_of_call());
        let result = work();
        self.begun.set(outer);
        result
    }

    /// The call that is being begun, if it is one of the program's.
    pub(crate) fn begun(&self) -> Option<CallName> {
        self.begun.get()
    }

    /// A word for [`What`].
    pub(crate) fn label(&self, word: &str) -> Label {
        self.store.borrow_mut().label(word)
    }

    /// To be called now and then while one waits, so that a job that hangs leaves a trace.
    pub(crate) fn idle(&self) {
        self.look(now_ns());
    }

    /// Writes what there is, if it was long ago that this was done.
    fn look(&self, now_ns: u64) {
        if now_ns >= self.write_at_ns.get() {
            self.write();
        }
    }

    /// Writes what there is to this rank's file, by this rank's clock.
    pub(crate) fn write(&self) {
        if self.is_finished.get() {
            return;
        }
        let begin_ns = now_ns();
        let text = part::file(&self.card, &part::lines(&self.card, &self.store.borrow(), begin_ns, None));
        if let Err(error) = replace(&self.part, &[text.as_bytes()]) {
            self.note_trouble(&self.part, &error);
        }
        let (end_ns, what) = (now_ns(), What::named("writing the trace"));
        let span = Span { lane: Lane::Calls, what, begin_ns, end_ns, ending: Ending::Well };
        self.store.borrow_mut().push(span);
        self.write_at_ns.set(end_ns + WRITE_EVERY_NS.max(WRITE_SHARE * (end_ns - begin_ns)));
    }

    fn note_trouble(&self, path: &Path, error: &io::Error) {
        let why = || format!("HAN_TRACE: rank {} cannot write {}: {error}", self.card.rank, path.display());
        self.trouble.borrow_mut().get_or_insert_with(why);
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.write();
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("path", &self.path).finish_non_exhaustive()
    }
}

/// `path` with something behind its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// The file of `rank` beside that of all ranks.
fn part_of(path: &Path, rank: usize) -> PathBuf {
    beside(path, &format!(".rank-{rank}"))
}

/// Puts a file with these bytes in the place of another one, at once.
fn replace(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let path = replaceable(path)?;
    let new = beside(&path, ".new");
    let written = write_all(&new, pieces).and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

fn write_all(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let mut file = NewFile::create(path)?;
    pieces.iter().try_for_each(|piece| io::Write::write_all(&mut file, piece))
}
