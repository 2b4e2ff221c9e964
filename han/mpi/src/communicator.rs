//! The program's communicators, by handle: which of them have one of han's beside them, made when it is needed.
//!
//! A communicator is looked at when the first collective on it comes here, so nothing has to be known of the many ways
//! to make one. An attribute with a delete callback tells of its end, whoever brings that about, so a handle that is
//! used again is never taken for the communicator that had it before. The callback can come in the middle of any call
//! of the MPI library; it only leaves a note.
//!
//! Whether a communicator is carried here is one decision of all its ranks: what it is made from, the group and the
//! number of calls so far, is the same on all, and what is not is agreed upon by an exchange between them. Calls that are
//! the MPI's in any case do not count: a wrong one may be a call of one rank alone.
#![allow(unsafe_code)] // Calls the MPI library, which calls back.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use han::{Communicator, Exchange};
use shm_core::say;

use crate::abi::{UNDEFINED, Word};
use crate::arguments::{Arguments, Seat};
use crate::exchange::Members;
use crate::gate;
use crate::handler::{LastHandler, Unheard};
use crate::process::{Ours, Process};
use crate::real::{Real, SUCCESS, real};
use crate::rules::{Why, weight};

/// The communicators that have been looked at.
pub(crate) struct Communicators {
    entries: RefCell<HashMap<Word, Rc<Entry>>>,
    /// The one that was asked for last.
    last: RefCell<Option<Rc<Entry>>>,
    /// Those that are being freed, and by which thread: to the others such a handle is a new communicator's.
    ending: RefCell<Vec<(Word, usize)>>,
    /// The number of the newest entry.
    newest: Cell<usize>,
    keyval: c_int,
}

/// A communicator of the program's.
pub(crate) struct Entry {
    handle: Word,
    seat: Seat,
    /// Tells it from others that have had the same handle.
    number: usize,
    /// What collectives on it have counted before it was decided upon: see [`Rules`](crate::rules::Rules).
    calls: Cell<u64>,
    standing: OnceCell<Standing>,
}

/// Who carries out a communicator's collectives.
pub(crate) enum Standing {
    /// This library.
    Ours(Rc<Ours>),
    /// The MPI.
    Theirs(Why),
}

/// Numbers of entries whose communicators have been freed.
static FREED: Mutex<Vec<(usize, Option<LastHandler>)>> = Mutex::new(Vec::new());
static ANY_FREED: AtomicBool = AtomicBool::new(false);

extern "C" fn freed(comm: Word, _: c_int, number: *mut c_void, _: *mut c_void) -> c_int {
    let note = (number.addr(), LastHandler::of(comm));
    FREED.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    ANY_FREED.store(true, Ordering::Relaxed);
    SUCCESS
}

impl Communicators {
    /// Knows `MPI_COMM_WORLD` only.
    pub(crate) fn new(handle: Word, world: Ours) -> Result<Self, String> {
        let keyval = real().comm_keyval(freed).ok_or("MPI_Comm_create_keyval failed")?;
        let seat = world.seat();
        let standing = OnceCell::from(Standing::Ours(Rc::new(world)));
        let entry = Rc::new(Entry { handle, seat, number: 0, calls: Cell::new(0), standing });
        let entries = RefCell::new(HashMap::from([(handle, entry)]));
        Ok(Self { entries, last: RefCell::default(), ending: RefCell::default(), newest: Cell::new(0), keyval })
    }

    /// The entry of a handle, a new one if it has none; an error if the handle is no communicator.
    #[inline]
    pub(crate) fn find(&self, process: &Process, handle: Word) -> Result<Rc<Entry>, Why> {
        self.notice_freed();
        if let Some(entry) = &*self.last.borrow()
            && entry.handle == handle
        {
            return Ok(Rc::clone(entry));
        }
        self.find_rare(process, handle)
    }

    #[inline(never)]
    fn find_rare(&self, process: &Process, handle: Word) -> Result<Rc<Entry>, Why> {
        if self.ending.borrow().contains(&(handle, gate::own())) {
            return Err(Why::Ending);
        }
        let known = self.entries.borrow().get(&handle).map(Rc::clone);
        let entry = match known {
            Some(entry) => entry,
            None => self.enter(process, handle)?,
        };
        *self.last.borrow_mut() = Some(Rc::clone(&entry));
        Ok(entry)
    }

    /// Looks at a communicator for the first time.
    fn enter(&self, process: &Process, handle: Word) -> Result<Rc<Entry>, Why> {
        if handle == process.abi.comm_null
            || !process.abi.flavour.may_be_communicator(handle)
            || process.datatypes.is_predefined(handle)
        {
            return Err(Why::Arguments);
        }
        if !is_communicator(process, handle) {
            return Err(Why::Arguments);
        }
        let group = Group::of(handle).ok_or(Why::Arguments)?;
        let number = self.newest.get() + 1;
        self.newest.set(number);
        // SAFETY: `handle` is a communicator, or its size would not be known; the value is a number, not an address.
        let code = unsafe { (real().comm_set_attr)(handle, self.keyval, ptr::without_provenance_mut(number)) };
        if code != SUCCESS {
            return Err(Why::Arguments);
        }
        let standing = match group {
            _ if group.is_inter => OnceCell::from(Standing::Theirs(Why::Intercommunicator)),
            _ if group.size == 1 => OnceCell::from(Standing::Theirs(Why::OneRank)),
            _ if group.ranks_in(process.abi.comm_world).is_none() => OnceCell::from(Standing::Theirs(Why::OtherWorld)),
            _ => OnceCell::new(),
        };
        let seat = Seat { rank: group.rank, size: group.size };
        let entry = Rc::new(Entry { handle, seat, number, calls: Cell::new(0), standing });
        self.entries.borrow_mut().insert(handle, Rc::clone(&entry));
        Ok(entry)
    }

    /// The program is freeing a communicator: from now on its collectives are the MPI's. Functions of its attributes may call some,
    /// on each rank before or after this library's own attribute is gone.
    pub(crate) fn begin_to_end(&self, handle: Word) {
        self.ending.borrow_mut().push((handle, gate::own()));
        self.last.borrow_mut().take();
    }

    /// It has done so, or failed: the handle may be that of another communicator.
    pub(crate) fn end(&self, handle: Word) {
        let (mut ending, own) = (self.ending.borrow_mut(), (handle, gate::own()));
        if let Some(place) = ending.iter().position(|&one| one == own) {
            ending.swap_remove(place);
        }
    }

    /// Reads what communicators that were freed have left.
    #[inline]
    pub(crate) fn notice_freed(&self) {
        if ANY_FREED.load(Ordering::Relaxed) {
            self.forget_freed();
        }
    }

    #[cold]
    fn forget_freed(&self) {
        ANY_FREED.store(false, Ordering::Relaxed);
        let mut freed = std::mem::take(&mut *FREED.lock().unwrap_or_else(PoisonError::into_inner));
        self.last.borrow_mut().take();
        self.entries.borrow_mut().retain(|_, entry| {
            let Some(place) = freed.iter().position(|&(number, _)| number == entry.number) else { return true };
            let (_, handler) = freed.swap_remove(place);
            if let (Some(Standing::Ours(ours)), Some(handler)) = (entry.standing.get(), handler) {
                ours.last_handler.get_or_init(|| handler);
            }
            false
        });
    }
}

impl Drop for Communicators {
    fn drop(&mut self) {
        // SAFETY: it was made in `new`; communicators that have it keep it.
        unsafe { (real().comm_free_keyval)(&raw mut self.keyval) };
    }
}

impl Entry {
    /// Who carries out the next collective; all ranks ask equally often for calls that are not the MPI's in any case.
    #[inline]
    pub(crate) fn standing(&self, process: &Process, arguments: impl Arguments + Copy) -> Result<&Rc<Ours>, Why> {
        match self.standing.get() {
            Some(Standing::Ours(ours)) => Ok(ours),
            Some(Standing::Theirs(why)) => Err(*why),
            None => self.decide(process, arguments),
        }
    }

    /// The same for a call that must not wait for others: what has not been decided is not decided by it, but counts.
    pub(crate) fn standing_already(&self, process: &Process, arguments: &impl Arguments) -> Result<&Rc<Ours>, Why> {
        match self.standing.get() {
            Some(Standing::Ours(ours)) => Ok(ours),
            Some(Standing::Theirs(why)) => Err(*why),
            None => {
                self.count(process, arguments)?;
                Err(Why::Young)
            }
        }
    }

    /// The same for calls that will be repeated: decided now.
    pub(crate) fn standing_for_good(&self, process: &Process, arguments: &impl Arguments) -> Result<&Rc<Ours>, Why> {
        match self.standing.get() {
            Some(Standing::Ours(ours)) => Ok(ours),
            Some(Standing::Theirs(why)) => Err(*why),
            None => {
                arguments.look(process, self.seat)?;
                self.settle(process)
            }
        }
    }

    #[inline(never)]
    fn decide(&self, process: &Process, arguments: impl Arguments) -> Result<&Rc<Ours>, Why> {
        if self.count(process, &arguments)? <= process.rules.after { Err(Why::Young) } else { self.settle(process) }
    }

    /// Counts a call, unless it is the MPI's in any case; gives what all so far come to.
    fn count(&self, process: &Process, arguments: &impl Arguments) -> Result<u64, Why> {
        let bytes = arguments.look(process, self.seat)?;
        let counted = self.calls.get().saturating_add(weight(bytes as u64));
        self.calls.set(counted);
        Ok(counted)
    }

    fn settle(&self, process: &Process) -> Result<&Rc<Ours>, Why> {
        let made = self.make(process);
        if let Err(why) = &made {
            say(&format!("libhan_mpi: a communicator's collectives are left to the MPI: {why}"));
        }
        let standing = made.map_or(Standing::Theirs(Why::NoMemory), |ours| Standing::Ours(Rc::new(ours)));
        match self.standing.get_or_init(|| standing) {
            Standing::Ours(ours) => Ok(ours),
            Standing::Theirs(why) => Err(*why),
        }
    }

    /// What its collectives are carried out with. Collective over its ranks; succeeds on all or on none.
    fn make(&self, process: &Process) -> Result<Ours, String> {
        let (group, world) = self.members(process)?;
        let passed = process.passed_by_rule(&world);
        Ok(Ours::new(self.handle, self.join(process, &group, world)?, passed))
    }

    /// Another of han's communicators for it. Collective over its ranks; succeeds on all or on none.
    pub(crate) fn another(&self, process: &Process) -> Result<Communicator, Why> {
        let made = self.members(process).and_then(|(group, world)| self.join(process, &group, world));
        made.map_err(|why| {
            say(&format!("libhan_mpi: a persistent collective is left to the MPI: {why}"));
            Why::NoMemory
        })
    }

    /// Its ranks, and by rank that in the world.
    fn members(&self, process: &Process) -> Result<(Group, Vec<usize>), String> {
        let group = Group::of(self.handle).ok_or("the communicator has gone")?;
        let world = group.ranks_in(process.abi.comm_world).ok_or("some ranks are in another world")?;
        Ok((group, world))
    }

    /// One of han's communicators with the same ranks.
    fn join(&self, process: &Process, group: &Group, world: Vec<usize>) -> Result<Communicator, String> {
        let mut members = Members::new(self.handle, process.abi.byte, group.rank, world)?;
        let made = process.context.communicator(&mut members).map_err(|e| e.to_string());
        // Whoever has seen that failed, han is at an end for this job; the MPI may go on.
        let made =
            if process.errors.have_been_told() { Err("a collective has failed before".to_owned()) } else { made };
        let words = members.allgather(made.as_ref().err().map_or(b"", |why| why.as_bytes()));
        let words = words.map_err(|e| e.to_string())?;
        match words.iter().position(|why| !why.is_empty()) {
            Some(rank) => Err(format!("rank {rank}: {}", String::from_utf8_lossy(&words[rank]))),
            None => made,
        }
    }
}

/// Whether a handle is a communicator's. If the program has freed that, the library calls an error handler to say so; the call
/// that the program made does that as well.
fn is_communicator(process: &Process, handle: Word) -> bool {
    // A handler that another thread sets meanwhile would be lost.
    let _unheard = (!gate::is_multiple()).then(|| Unheard::begin(process));
    // SAFETY: the handle is the program's, and there is room for a number.
    Real::number(|flag| unsafe { (real().comm_test_inter)(handle, flag) }).is_some()
}

/// What a communicator's ranks are.
struct Group {
    handle: Word,
    is_inter: bool,
    rank: usize,
    size: usize,
}

impl Group {
    /// That of `comm`; `None` if it is no communicator.
    fn of(comm: Word) -> Option<Self> {
        // SAFETY: the handle is the program's, and there is room for a number.
        let is_inter = Real::number(|flag| unsafe { (real().comm_test_inter)(comm, flag) })? != 0;
        // SAFETY: as above.
        let rank = Real::number(|rank| unsafe { (real().comm_rank)(comm, rank) })?;
        // SAFETY: as above.
        let size = Real::number(|size| unsafe { (real().comm_size)(comm, size) })?;
        Some(Self { handle: comm, is_inter, rank: usize::try_from(rank).ok()?, size: usize::try_from(size).ok()? })
    }

    /// By rank: its rank in `world`; `None` unless all are in it.
    fn ranks_in(&self, world: Word) -> Option<Vec<usize>> {
        let own: Vec<c_int> = (0..c_int::try_from(self.size).ok()?).collect();
        let mut found = vec![UNDEFINED; self.size];
        let (mut from, mut to): (Word, Word) = (0, 0);
        // SAFETY: both are communicators, and there is room for a handle.
        let code = unsafe { (real().comm_group)(self.handle, &raw mut from) };
        if code != SUCCESS {
            return None;
        }
        // SAFETY: as above.
        let mut code = unsafe { (real().comm_group)(world, &raw mut to) };
        if code == SUCCESS {
            let (ranks, count) = (own.as_ptr(), own.len());
            let count = c_int::try_from(count).ok()?;
            // SAFETY: both arrays have as many numbers as the group has ranks.
            code = unsafe { (real().group_translate_ranks)(from, count, ranks, to, found.as_mut_ptr()) };
            // SAFETY: the group was made above.
            unsafe { (real().group_free)(&raw mut to) };
        }
        // SAFETY: as above.
        unsafe { (real().group_free)(&raw mut from) };
        let known = found.iter().map(|&rank| usize::try_from(rank).ok());
        if code == SUCCESS { known.collect() } else { None }
    }
}
