//! Segments: one shared memory object that all ranks of a group have mapped.
//!
//! Three kinds, one interface: `memfd` (anonymous; the default), `dev_shm` (a file in `/dev/shm`,
//! unlinked as soon as all have attached) and `heap` (threads of one process; the twin that the
//! sanitizers can follow). Which one it is, is decided together: every rank attaches or none does.
#![allow(unsafe_code)] // turns offsets into references to atomics

pub mod layout;

mod heap;

use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::sync::Ordering;
use crate::sys::map::{self, SharedMap};
use heap::HeapBlock;
use layout::{Header, MAGIC, layout_hash};

/// The kinds of memory that ranks can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// An anonymous object, reached through `/proc/PID/fd`.
    Memfd,
    /// A file in `/dev/shm`, unlinked as soon as all have attached.
    DevShm,
    /// Memory of this process, for ranks that are its threads.
    Heap,
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memfd => "memfd",
            Self::DevShm => "dev_shm",
            Self::Heap => "heap",
        })
    }
}

#[derive(Debug)]
enum Memory {
    Shared(SharedMap),
    Heap(HeapBlock),
}

/// A mapped segment. Places in it are named by offsets, checked against its length.
#[derive(Debug)]
pub struct Segment {
    memory: Memory,
    backing: Backing,
}

/// The part of what is free in `/dev/shm` that a segment may take where less would do: a quarter.
const PARTS_OF_FREE: u64 = 4;

/// What a segment is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// What the kernel's listings call it.
    pub(crate) name: &'static str,
    /// Ranks that share it.
    pub(crate) ranks: usize,
    /// A digest of who they are, and of what else they must agree on.
    pub(crate) members: u64,
    /// Bytes of one cell of a communicator; 0 for a job.
    pub(crate) cell_bytes: usize,
    /// Length of the whole.
    pub(crate) bytes: usize,
    /// What it may be instead where all of it is taken from little memory at once.
    pub(crate) least_bytes: usize,
}

/// A typed place in a segment, computed once, checked once.
#[derive(Debug)]
pub struct Place<T> {
    pointer: *const T,
    _type: PhantomData<T>,
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Place<T> {}

/// What the maker tells the others: where the object is and what it must look like.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ticket {
    backing: Backing,
    bytes: usize,
    cookie: u64,
    members: u64,
    place: String,
}

impl Segment {
    /// Makes a segment together: rank 0 of `exchange` makes it, everybody maps it.
    ///
    /// `backings` are tried in order until one can be mapped by all. Collective.
    ///
    /// # Errors
    /// None of them could be mapped by all ranks; the message has every rank's reason. There is no memory for the only one.
    pub(crate) fn together(exchange: &mut dyn Exchange, shape: &Shape, backings: &[Backing]) -> Result<Self> {
        let (mut reasons, mut lack) = (Vec::new(), None);
        for &backing in backings {
            // Every attempt takes two exchanges, whatever happens, so that groups stay in step.
            let made = (exchange.rank() == 0).then(|| Self::make(backing, shape));
            let word = match &made {
                Some(Ok((_, ticket))) => ticket.to_text(),
                Some(Err(e)) => e.to_string(),
                None => String::new(),
            };
            let words = gather(exchange, word.as_bytes())?;
            let ticket = Ticket::from_text(&words[0]);
            let mapped = match (made, &ticket) {
                (Some(own), _) => own.map(|(segment, _)| segment),
                (None, Some(ticket)) => Self::attach(ticket, shape),
                (None, None) => Err(Error::Startup("rank 0 could not make it".to_owned())),
            };
            let verdict = mapped.as_ref().map_or_else(ToString::to_string, |_| String::new());
            let verdicts = gather(exchange, verdict.as_bytes())?;
            if let (Ok(mut segment), true) = (mapped, verdicts.iter().all(String::is_empty)) {
                // All have it: the name has done its work. It goes as well with a segment that is given up.
                if let Memory::Shared(map) = &mut segment.memory {
                    map.unlink();
                }
                return Ok(segment);
            }
            let failed = verdicts.iter().enumerate().filter(|(_, verdict)| !verdict.is_empty());
            let failed: Vec<_> = failed.map(|(rank, verdict)| (exchange.number(rank), verdict)).collect();
            let mut told = failed.iter().map(|(rank, verdict)| Error::told(*rank, verdict));
            lack = told.find(|error| matches!(error, Error::NoMemory { .. }));
            reasons.extend(failed.first().map(|(rank, verdict)| format!("{backing}: rank {rank}: {verdict}")));
        }
        let startup = || Error::Startup(format!("no shared memory that all ranks can map: {}", reasons.join("; ")));
        Err(lack.filter(|_| backings.len() == 1).unwrap_or_else(startup))
    }

    fn make(backing: Backing, shape: &Shape) -> Result<(Self, Ticket)> {
        let mut bytes = shape.bytes;
        let cookie = random();
        let (memory, place) = match backing {
            Backing::Memfd => {
                let map = SharedMap::anonymous(shape.name, bytes)?;
                let place = map.path_for_peers();
                (Memory::Shared(map), place)
            }
            Backing::DevShm => {
                // So that there is room for many.
                if bytes as u64 > map::room_in_dev_shm() / PARTS_OF_FREE {
                    bytes = shape.least_bytes;
                }
                // Another job that starts just now may sweep the name away before it is locked.
                let attempt = |number: u8| {
                    let place = Path::new(map::DEV_SHM).join(format!("{}{cookie:016x}-{number}", map::prefix()));
                    SharedMap::named(&place, bytes).map(|map| (Memory::Shared(map), place))
                };
                attempt(0).or_else(|_| attempt(1))?
            }
            Backing::Heap => {
                let block = HeapBlock::new(bytes);
                let place = PathBuf::from(block.exposed());
                (Memory::Heap(block), place)
            }
        };
        let segment = Self { memory, backing };
        let header = segment.header();
        header.magic.store(MAGIC, Ordering::Relaxed);
        header.layout.store(layout_hash(), Ordering::Relaxed);
        header.cookie.store(cookie, Ordering::Relaxed);
        header.size.store(u32::try_from(shape.ranks).unwrap_or(u32::MAX), Ordering::Relaxed);
        header.cell_bytes.store(u32::try_from(shape.cell_bytes).unwrap_or(u32::MAX), Ordering::Relaxed);
        let place = place.to_string_lossy().into_owned();
        Ok((segment, Ticket { backing, bytes, cookie, members: shape.members, place }))
    }

    fn attach(ticket: &Ticket, shape: &Shape) -> Result<Self> {
        if ticket.members != shape.members {
            return Err(Error::InvalidArgument("its ranks are not those of the first".to_owned()));
        }
        let memory = match ticket.backing {
            Backing::Heap => Memory::Heap(HeapBlock::attach(&ticket.place, ticket.bytes)?),
            Backing::Memfd | Backing::DevShm => {
                Memory::Shared(SharedMap::open(Path::new(&ticket.place), ticket.bytes)?)
            }
        };
        let segment = Self { memory, backing: ticket.backing };
        segment.check_header()?;
        if segment.header().cookie.load(Ordering::Relaxed) != ticket.cookie {
            let reason = format!("{} is not the segment of this job (another node or namespace?)", ticket.place);
            return Err(Error::System { api: "attach", reason });
        }
        Ok(segment)
    }

    /// Maps a segment of somebody else's job, to look at it.
    pub(crate) fn inspect(path: &Path) -> Result<Self> {
        let map = SharedMap::inspect(path, layout::PAGE)?;
        let segment = Self { memory: Memory::Shared(map), backing: Backing::Memfd };
        segment.check_header()?;
        Ok(segment)
    }

    fn check_header(&self) -> Result<()> {
        let header = self.header();
        let (magic, hash) = (header.magic.load(Ordering::Relaxed), header.layout.load(Ordering::Relaxed));
        if magic != MAGIC {
            return Err(Error::System { api: "attach", reason: "not a segment of han".into() });
        }
        if hash != layout_hash() {
            let reason = format!(
                "its layout {hash:016x} is not this build's {:016x}: all ranks must use the same build of han",
                layout_hash()
            );
            return Err(Error::System { api: "attach", reason });
        }
        Ok(())
    }

    /// The kind that all ranks agreed on.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.memory {
            Memory::Shared(map) => map.bytes(),
            Memory::Heap(block) => block.bytes(),
        }
    }

    fn base(&self) -> *mut u8 {
        match &self.memory {
            Memory::Shared(map) => map.base(),
            Memory::Heap(block) => block.base(),
        }
    }

    /// Closes the descriptor through which others attach and look; the memory stays mapped.
    pub(crate) fn forget_file(&mut self) {
        if let Memory::Shared(map) = &mut self.memory {
            map.forget_file();
        }
    }

    /// What the segment begins with.
    #[must_use]
    pub fn header(&self) -> &Header {
        let place = self.place::<Header>(0);
        // SAFETY: the place was made by this segment, which is borrowed for as long as the reference.
        unsafe { place.get() }
    }

    /// The `T` at `offset`. `T` must be one of the structs in [`layout`]: atomics only, valid as zeros.
    ///
    /// # Panics
    /// It does not lie in the segment or is misaligned: an error of this crate's own arithmetic.
    #[must_use]
    pub(crate) fn place<T>(&self, offset: usize) -> Place<T> {
        let pointer = self.bytes_at(offset, size_of::<T>()).cast::<T>().cast_const();
        assert!(pointer.is_aligned(), "offset {offset} is misaligned");
        Place { pointer, _type: PhantomData }
    }

    /// `length` bytes at `offset`, as a pointer because peers write there.
    ///
    /// # Panics
    /// They do not lie in the segment: an error of this crate's own arithmetic.
    #[must_use]
    pub(crate) fn bytes_at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.bytes()), "offset {offset} + {length} is outside the segment");
        self.base().wrapping_add(offset)
    }
}

impl<T> Place<T> {
    /// # Safety
    /// The segment that made the place is still mapped for the lifetime of the reference.
    #[inline]
    pub(crate) unsafe fn get<'a>(self) -> &'a T {
        // SAFETY: in bounds and aligned (checked by `Segment::place`), mapped (the caller's promise);
        // T is made of atomics, so writes of other ranks behind the reference are allowed.
        unsafe { &*self.pointer }
    }
}

impl Ticket {
    fn to_text(&self) -> String {
        let Self { backing, bytes, cookie, members, place } = self;
        format!("{backing} {bytes} {cookie:x} {members:x} {place}")
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        let backing = match words.next()? {
            "memfd" => Backing::Memfd,
            "dev_shm" => Backing::DevShm,
            "heap" => Backing::Heap,
            _ => return None,
        };
        let bytes = words.next()?.parse().ok()?;
        let mut number = || u64::from_str_radix(words.next()?, 16).ok();
        let (cookie, members) = (number()?, number()?);
        Some(Self { backing, bytes, cookie, members, place: words.next()?.to_owned() })
    }
}

/// An allgather of texts whose failure is a start-up error.
pub(crate) fn gather(exchange: &mut dyn Exchange, bytes: &[u8]) -> Result<Vec<String>> {
    let all = exchange.allgather(bytes).map_err(Error::of_exchange)?;
    Ok(all.iter().map(|b| String::from_utf8_lossy(b).into_owned()).collect())
}

/// A value that no other segment has: from the standard library's randomly keyed hasher.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(crate::sys::clock::now_ns());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_survives_its_text() {
        let ticket =
            Ticket { backing: Backing::Memfd, bytes: 4096, cookie: 77, members: 5, place: "/proc/1/fd/3".into() };
        assert_eq!(Ticket::from_text(&ticket.to_text()), Some(ticket));
        for bad in ["", "error no memory", "memfd x 1 /p", "memfd 1 zz /p", "memfd 1 2"] {
            assert_eq!(Ticket::from_text(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_no_segment_or_one_of_another_build_is_refused() {
        let mut alone = crate::exchange::Alone;
        let shape = Shape { name: "test", ranks: 1, members: 7, cell_bytes: 0, bytes: 4096, least_bytes: 4096 };
        let segment = Segment::together(&mut alone, &shape, &[Backing::Memfd]).expect("memfd");
        let Memory::Shared(map) = &segment.memory else { unreachable!("a memfd") };
        let (header, path) = (segment.header(), map.path_for_peers());
        let place = path.to_str().expect("text").to_owned();
        let cookie = header.cookie.load(Ordering::Relaxed);
        let ticket = Ticket { backing: Backing::Memfd, bytes: 4096, cookie, members: 7, place };
        let outcomes = || [Segment::attach(&ticket, &shape).map(drop), Segment::inspect(&path).map(drop)];
        assert!(outcomes().iter().all(Result::is_ok));
        for (word, why) in [(&header.magic, "not a segment of han"), (&header.layout, "the same build of han")] {
            let right = word.load(Ordering::Relaxed);
            word.store(right ^ 1, Ordering::Relaxed);
            for outcome in outcomes() {
                let error = outcome.expect_err("another one").to_string();
                assert!(error.contains(why), "{error}");
            }
            word.store(right, Ordering::Relaxed);
        }
        header.cookie.store(cookie ^ 1, Ordering::Relaxed);
        let error = Segment::attach(&ticket, &shape).expect_err("another job's").to_string();
        assert!(error.contains("is not the segment of this job"), "{error}");
    }

    #[test]
    #[should_panic(expected = "outside the segment")]
    fn places_are_checked() {
        let mut alone = crate::exchange::Alone;
        let shape = Shape { name: "test", ranks: 1, members: 0, cell_bytes: 0, bytes: 4096, least_bytes: 4096 };
        let segment = Segment::together(&mut alone, &shape, &[Backing::Heap]).expect("heap");
        let _ = segment.bytes_at(4000, 97);
    }
}
