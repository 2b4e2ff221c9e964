//! Ordinary memory of this rank that peers can map: buffers that were registered, in the process's mirror.
//!
//! A registration covers whole pages, also the parts of the first and the last one that belong to other
//! data; registrations may have pages in common.
#![allow(unsafe_code)] // replaces mappings of this process

use std::ops::Range;

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::sys::fork::{self, Still};
use crate::sys::pages::{self, Mirror, Stuck};

/// One registered buffer.
#[derive(Debug)]
struct Registration {
    /// Where the buffer begins.
    buffer: usize,
    bytes: usize,
    neighbours: Neighbours,
    /// The pages that it lies on.
    pages: Range<usize>,
    /// The number of its region; `None` where peers do not map memory.
    region: Option<u64>,
}

/// All registered buffers, and the file that they live in.
#[derive(Debug, Default)]
pub(super) struct Registered {
    list: Vec<Registration>,
    /// Pages that stay shared although no registered buffer lies on them: another thread may use them, or the
    /// system has refused to give them back.
    retained: Vec<Range<usize>>,
    mirror: Option<Mirror>,
}

/// What becomes of the pages of a buffer that is unregistered.
#[derive(Debug)]
pub(super) struct Leaving {
    /// The buffer's place in the list.
    index: usize,
    /// The number of its region.
    pub(super) region: Option<u64>,
    /// They become private.
    there: Vec<Range<usize>>,
    /// They were freed before.
    gone: Vec<Range<usize>>,
    /// They stay shared.
    stay: Vec<Range<usize>>,
}

/// What is done where the system does not tell which pages of a buffer were freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untold {
    /// The buffer stays registered.
    Refused,
    /// Its pages stay shared.
    Kept,
}

/// Who may share pages with a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbours {
    /// Other data, which no other thread writes meanwhile: the caller's promise.
    Still,
    /// Other data only if this process has one thread.
    IfAlone,
}

/// The whole pages around a buffer, if it can be registered as far as arithmetic tells.
pub(super) fn pages_around(buffer: usize, bytes: usize, neighbours: Neighbours) -> Result<Range<usize>> {
    let page = pages::page_bytes();
    let end = buffer.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page));
    let pages = match end {
        _ if bytes == 0 => return Err(refused(buffer, bytes, "there are no pages in 0 bytes")),
        Some(end) => buffer / page * page..end,
        None => return Err(refused(buffer, bytes, "it is longer than the address space")),
    };
    match threads_beside(&edges(buffer, bytes, &pages), neighbours)? {
        1 => Ok(pages),
        threads => {
            let why = format!(
                "its first or last page may hold data that another of the {threads} threads writes to: use whole pages, \
                 memory from `alloc`, or register before threads are started"
            );
            Err(refused(buffer, bytes, &why))
        }
    }
}

/// Those of the first and the last page that hold other data, too.
fn edges(buffer: usize, bytes: usize, pages: &Range<usize>) -> Vec<Range<usize>> {
    let page = pages::page_bytes();
    let first = (buffer != pages.start).then_some(pages.start..pages.start + page);
    let last = (buffer + bytes != pages.end).then_some(pages.end - page..pages.end);
    first.into_iter().chain(last).collect()
}

/// How many threads may use pages with other data just now: they may be moved if it is 1, the calling one.
fn threads_beside(edges: &[Range<usize>], neighbours: Neighbours) -> Result<usize> {
    if edges.is_empty() || neighbours == Neighbours::Still { Ok(1) } else { pages::threads() }
}

pub(super) fn refused(buffer: usize, bytes: usize, why: &str) -> Error {
    Error::InvalidArgument(format!("{bytes} bytes at {buffer:#x} cannot be registered: {why}"))
}

impl Registered {
    /// Checks that `pages` can be registered for a buffer that begins at `buffer`; gives those that are not
    /// shared yet.
    pub(super) fn check(&self, buffer: usize, bytes: usize, pages: &Range<usize>) -> Result<Vec<Range<usize>>> {
        if self.list.iter().any(|known| known.buffer == buffer) {
            return Err(refused(buffer, bytes, "it is registered already"));
        }
        // As the kernel has it: what is on the list may have been freed.
        let fresh = self.mirror.as_ref().map_or_else(|| Ok(vec![pages.clone()]), |mirror| mirror.lacks(pages))?;
        for range in &fresh {
            if let Some(why) = pages::obstacle_in(range)? {
                return Err(refused(buffer, bytes, &why));
            }
        }
        Ok(fresh)
    }

    /// Descriptor and inode of the file, which is made if need be.
    pub(super) fn file(&mut self) -> Result<(u32, u64)> {
        let mirror = match &mut self.mirror {
            Some(mirror) if !mirror.is_open() => {
                let reason = "the program has closed the descriptor of han's file for registered memory".to_owned();
                return Err(Error::System { api: "fstat", reason });
            }
            Some(mirror) => mirror,
            none => none.insert(Mirror::new()?),
        };
        Ok((mirror.fd(), mirror.inode()))
    }

    /// Notes a buffer whose pages stay as they are.
    pub(super) fn note(&mut self, buffer: usize, bytes: usize, pages: Range<usize>) {
        self.list.push(Registration { buffer, bytes, neighbours: Neighbours::Still, pages, region: None });
    }

    /// Takes the pages in for the region `region`, those of them that are `fresh`.
    ///
    /// # Safety
    /// [`check`](Self::check) and [`file`](Self::file) have just found them, and nobody writes to the pages meanwhile.
    pub(super) unsafe fn take_in(
        &mut self,
        (buffer, bytes): (usize, usize),
        pages: Range<usize>,
        fresh: Vec<Range<usize>>,
        neighbours: Neighbours,
        region: u64,
    ) -> Result<()> {
        let still = Still::begin();
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let mut taken: Vec<Range<usize>> = Vec::with_capacity(fresh.len());
        let mut outcome = Ok(());
        for range in fresh {
            // SAFETY: the caller's promise; signals wait.
            match unsafe { mirror.take_in(range.clone()) } {
                Ok(()) => taken.push(range),
                Err(Stuck { pages, error }) => {
                    taken.push(pages);
                    outcome = Err(error);
                    break;
                }
            }
        }
        if outcome.is_ok() {
            let retained = std::mem::take(&mut self.retained);
            self.list.push(Registration { buffer, bytes, neighbours, pages: pages.clone(), region: Some(region) });
            self.retained = retained.iter().flat_map(|range| uncovered(range, [&pages].into_iter())).collect();
            if self.protect(&still) || self.protect_what_is_there(&still) {
                return Ok(());
            }
            self.list.pop();
            self.retained = retained;
            outcome = Err(not_protected(bytes));
        }
        // SAFETY: taken in above, not used since. What stays is kept track of; the first error says why.
        let _ = unsafe { self.release(&taken) };
        let _ = self.protect(&still);
        outcome
    }

    /// Makes pages private again. Those that the system does not let go are retained.
    ///
    /// # Safety
    /// They are mapped from the mirror, no buffer lies on them, nobody accesses them meanwhile, and signals wait.
    unsafe fn release(&mut self, ranges: &[Range<usize>]) -> Result<()> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let mut outcome = Ok(());
        for range in ranges {
            // SAFETY: the caller's promise.
            if let Err(Stuck { pages, error }) = unsafe { mirror.give_back(range.clone()) } {
                self.retained.push(pages);
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }

    /// Finds out what is to be given back of the buffer that begins at `buffer`, as far as other buffers do not lie on its
    /// pages. `is_lent`: others than this process may be working on other data, on the first or the last page.
    ///
    /// # Errors
    /// It is not registered, or the system does not tell ([`Untold::Refused`]).
    pub(super) fn leaving(
        &self,
        buffer: usize,
        is_lent: impl Fn(&Range<usize>) -> bool,
        untold: Untold,
    ) -> Result<Leaving> {
        let index = self.list.iter().position(|known| known.buffer == buffer);
        let unknown = || Error::InvalidArgument(format!("no registered buffer begins at {buffer:#x}"));
        let index = index.ok_or_else(unknown)?;
        let known = &self.list[index];
        let mut leaving =
            Leaving { index, region: known.region, there: Vec::new(), gone: Vec::new(), stay: Vec::new() };
        let Some(mirror) = self.mirror.as_ref().filter(|_| known.region.is_some()) else { return Ok(leaving) };
        let mut edges = edges(buffer, known.bytes, &known.pages);
        let may_move = threads_beside(&edges, known.neighbours).is_ok_and(|threads| threads == 1);
        edges.retain(|page| !may_move || is_lent(page));
        leaving.stay = edges;
        let others = shared(self.list[..index].iter().chain(&self.list[index + 1..]));
        for range in uncovered(&known.pages, others.chain(&self.retained).chain(&leaving.stay)) {
            match mirror.lacks(&range) {
                Ok(gone) => {
                    leaving.there.extend(uncovered(&range, gone.iter()));
                    leaving.gone.extend(gone);
                }
                Err(error) if untold == Untold::Refused => return Err(error),
                Err(_) => leaving.stay.push(range),
            }
        }
        Ok(leaving)
    }

    /// Forgets a buffer and gives its pages back.
    ///
    /// # Errors
    /// Its memory was freed before, or the system refuses.
    ///
    /// # Safety
    /// [`leaving`](Self::leaving) has just found them, and nobody accesses the pages meanwhile.
    pub(super) unsafe fn give_back(&mut self, leaving: Leaving) -> Result<()> {
        let Leaving { index, region, there, gone, stay } = leaving;
        let buffer = self.list.remove(index).buffer;
        if region.is_none() {
            return Ok(());
        }
        let still = Still::begin();
        self.retained.extend(stay);
        if let Some(mirror) = &self.mirror {
            for part in &gone {
                mirror.discard(part);
            }
        }
        // SAFETY: these pages are the mirror's, no other buffer lies on them, and nobody uses them.
        let released = unsafe { self.release(&there) };
        // With fewer ranges there is room.
        let _ = self.protect(&still);
        if self.list.is_empty() && self.retained.is_empty() {
            // What children have views of goes with them; where the program has closed the file, the next one is another.
            self.mirror.take_if(|mirror| mirror.has_viewers() || !mirror.is_open());
        }
        if gone.is_empty() {
            return released;
        }
        Err(Error::InvalidArgument(format!("the memory at {buffer:#x} was freed before it was unregistered")))
    }

    /// Gives all back.
    ///
    /// # Safety
    /// Nobody accesses the pages meanwhile.
    pub(super) unsafe fn give_all_back(&mut self) {
        while let Some(buffer) = self.list.last().map(|last| last.buffer)
            && let Ok(leaving) = self.leaving(buffer, |_| false, Untold::Kept)
        {
            // SAFETY: the caller's promise. What was freed before is no memory of ours to give back.
            let _ = unsafe { self.give_back(leaving) };
        }
        if !self.retained.is_empty() {
            // Forked children need the file for pages that stay in it.
            std::mem::forget(self.mirror.take());
        }
    }

    /// Tells what a forked child must replace.
    fn protect(&self, still: &Still) -> bool {
        let ranges: Vec<Range<usize>> = shared(&self.list).chain(&self.retained).cloned().collect();
        self.mirror.as_ref().is_none_or(|mirror| still.protect(mirror.fd(), mirror.inode(), &ranges))
    }

    /// The same, with room for more where retained pages were freed since.
    fn protect_what_is_there(&mut self, still: &Still) -> bool {
        let Some(mirror) = &self.mirror else { return true };
        // What the system does not tell of may be there.
        let rest = |range: &Range<usize>| uncovered(range, mirror.lacks(range).unwrap_or_default().iter());
        self.retained = self.retained.iter().flat_map(rest).collect();
        self.protect(still)
    }
}

/// Why forked children would not have pages of their own, so that `bytes` are not shared.
fn not_protected(bytes: usize) -> Error {
    if fork::ready() {
        let reason = format!("a process shares at most {} ranges of pages", fork::MOST);
        return Error::NoMemory { bytes, reason };
    }
    // The only reason that it has.
    Error::system("pthread_atfork", Errno::ENOMEM)
}

/// The pages of those that peers map.
fn shared<'a>(list: impl IntoIterator<Item = &'a Registration>) -> impl Iterator<Item = &'a Range<usize>> {
    list.into_iter().filter(|known| known.region.is_some()).map(|known| &known.pages)
}

/// The parts of `pages` that none of `others` has.
fn uncovered<'a>(pages: &Range<usize>, others: impl Iterator<Item = &'a Range<usize>>) -> Vec<Range<usize>> {
    let mut parts = vec![pages.clone()];
    for other in others {
        let split = |part: Range<usize>| {
            let before = part.start..part.end.min(other.start);
            let behind = part.start.max(other.end)..part.end;
            [before, behind].into_iter().filter(|part| !part.is_empty())
        };
        parts = parts.into_iter().flat_map(split).collect();
    }
    parts
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // they are ranges
mod tests {
    use super::*;

    #[test]
    fn what_others_have_is_left_out() {
        let others = [10..20, 15..30, 50..60];
        assert_eq!(uncovered(&(0..5), others.iter()), [0..5]);
        assert_eq!(uncovered(&(0..100), others.iter()), [0..10, 30..50, 60..100]);
        assert_eq!(uncovered(&(12..28), others.iter()), []);
        assert_eq!(uncovered(&(20..55), others.iter()), [30..50]);
    }

    #[test]
    fn pages_are_whole_and_arithmetic_does_not_wrap() {
        let page = pages::page_bytes();
        let around = |buffer, bytes| pages_around(buffer, bytes, Neighbours::Still);
        assert_eq!(around(page + 1, 1).ok(), Some(page..2 * page));
        assert_eq!(around(page, page).ok(), Some(page..2 * page));
        assert_eq!(around(2 * page - 1, 2).ok(), Some(page..3 * page));
        for (buffer, bytes) in [(page, 0), (page, usize::MAX), (usize::MAX, 1), (usize::MAX - 1, 1)] {
            assert!(around(buffer, bytes).is_err(), "{buffer:#x} {bytes:#x}");
        }
        // This test's process has several threads.
        let error = pages_around(page + 1, 10, Neighbours::IfAlone).expect_err("other data may lie there");
        assert!(error.to_string().contains("threads"), "{error}");
        assert!(pages_around(page, page, Neighbours::IfAlone).is_ok());
    }
}
