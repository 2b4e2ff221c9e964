//! What the machine itself charges: the primitives behind `han bench --limits`.
//!
//! Every collective is made of a few things that the caches and the kernel ask a price for: a
//! cache line that moves, a copy, a reduction, a process that is scheduled. This module times each
//! of them alone, between two processes that share an [`Arena`], so that a collective's time can be
//! held against its floor. Nothing on the data path uses it.
//!
//! The two processes are the *first* side, which measures, and the *second*, which answers. Who
//! starts the second one, and when, is the caller's business (`han bench` starts itself again).
#![allow(unsafe_code)] // two processes share memory here, and copies from another process take raw addresses

use std::collections::TryReserveError;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use reduce_kernels::{Datatype, Operator, kernel};

use super::map::SharedMap;
use super::remote::{self, Way};
use super::{affinity, futex};
use crate::error::{Error, Result};

/// Where the data area starts: the word that both sides take turns on has the first page alone.
const DATA_OFFSET: usize = 4096;
/// How long a side waits for the other before it calls it lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// Waiting steps between two looks at the clock, so that the clock does not slow the answer down.
const STEPS_PER_LOOK: u32 = 1 << 14;
/// Where buffers begin.
const PAGE_BYTES: usize = 4096;
/// How far the second buffer of a loop is shifted against the first, see [`PageAligned::new`].
const SKEW_BYTES: usize = 128;
/// Repeats of a bandwidth figure; the median is reported.
const REPEATS: usize = 7;

/// Which of the two processes the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Speaks first, and measures.
    First,
    /// Answers.
    Second,
}

/// How a side waits for the other's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Loads the word again and again: the price of moving the cache line, and nothing else.
    Spin,
    /// Gives the core away between two loads.
    Yield,
    /// Sleeps in the kernel until it is woken.
    Futex,
}

/// Memory that two processes share: one word to take turns on, and a data area.
#[derive(Debug)]
pub struct Arena(SharedMap);

impl Arena {
    /// Makes an arena with `data_bytes` of data; the other process attaches through [`Self::path`].
    ///
    /// # Errors
    /// The system call that failed.
    pub fn create(data_bytes: usize) -> Result<Self> {
        SharedMap::anonymous("han-limits", DATA_OFFSET + data_bytes).map(Self)
    }

    /// Attaches to the arena behind `path`, as given by its maker's [`Self::path`].
    ///
    /// # Errors
    /// The system call that failed, or the object is too short for an arena.
    pub fn attach(path: &Path) -> Result<Self> {
        SharedMap::inspect(path, DATA_OFFSET).map(Self)
    }

    /// Where a process of the same user finds this arena for as long as it lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.path_for_peers()
    }

    /// The word that both sides take turns on. The first side counts odd, the second even.
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping lives as long as `self`, is page aligned and at least DATA_OFFSET long
        // (by `create` and `attach`), and both processes touch its first page through this atomic
        // alone.
        unsafe { AtomicU32::from_ptr(self.0.base().cast()) }
    }

    /// The data area, which the sides write and read in turns only.
    fn data(&self, bytes: usize) -> Result<*mut u8> {
        let room = self.0.bytes() - DATA_OFFSET;
        if bytes > room {
            return Err(Error::InvalidArgument(format!(
                "the arena holds {room} bytes of data, {bytes} were asked for"
            )));
        }
        // SAFETY: the mapping is at least DATA_OFFSET long (by `create` and `attach`).
        Ok(unsafe { self.0.base().add(DATA_OFFSET) })
    }

    /// Starts the count again. The first side calls it before it sets the second to work.
    pub fn reset(&self) {
        self.word().store(0, Ordering::Relaxed);
    }

    /// Passes one word to and fro, `rounds` times in each of `batches` batches, and gives the one-way
    /// time of each batch in nanoseconds.
    ///
    /// # Errors
    /// `Timeout` when the other side does not answer.
    pub fn ping_pong(&self, side: Side, wait: Wait, rounds: u32, batches: u32) -> Result<Vec<f64>> {
        let word = self.word();
        let mut turn = 0;
        let mut times = Vec::new();
        for _ in 0..batches {
            let start = Instant::now();
            for _ in 0..rounds {
                match side {
                    Side::First => {
                        pass(word, turn + 1, wait);
                        await_turn(word, turn + 2, wait)?;
                    }
                    Side::Second => {
                        await_turn(word, turn + 1, wait)?;
                        pass(word, turn + 2, wait);
                    }
                }
                turn += 2;
            }
            times.push(nanoseconds(start.elapsed()) / f64::from(rounds) / 2.0);
        }
        Ok(times)
    }

    /// The second side rewrites `bytes` of the data area, the first then copies them into memory of
    /// its own; gives the time of each of `rounds` copies in nanoseconds on the first side.
    ///
    /// # Errors
    /// `Timeout` when the other side does not answer; `InvalidArgument` when the arena is too small.
    pub fn copy_from_peer(&self, side: Side, bytes: usize, rounds: u32) -> Result<Vec<f64>> {
        let word = self.word();
        let data = self.data(bytes)?;
        let mut own = PageAligned::new(0u8, bytes, SKEW_BYTES);
        let mut times = Vec::new();
        for round in 0..rounds {
            match side {
                Side::First => {
                    pass(word, 2 * round + 1, Wait::Spin);
                    await_turn(word, 2 * round + 2, Wait::Spin)?;
                    let start = Instant::now();
                    let target = own.first_mut(bytes).as_mut_ptr();
                    // SAFETY: `data` has `bytes` bytes (checked), `target` is another allocation of
                    // that length, and the second side waits for the next turn before it writes.
                    unsafe { data.cast_const().copy_to_nonoverlapping(target, bytes) };
                    black_box(&mut own);
                    times.push(nanoseconds(start.elapsed()));
                }
                Side::Second => {
                    await_turn(word, 2 * round + 1, Wait::Spin)?;
                    // SAFETY: `data` has `bytes` bytes (checked), and the first side reads them
                    // only after the turn that is passed below.
                    unsafe { data.write_bytes(round.to_le_bytes()[0], bytes) };
                    pass(word, 2 * round + 2, Wait::Spin);
                }
            }
        }
        Ok(times)
    }
}

/// Gives the turn to the other side.
fn pass(word: &AtomicU32, turn: u32, wait: Wait) {
    // T1 (Release): what this side wrote before its turn ended is there when the other sees the turn. Pairs with T2.
    word.store(turn, Ordering::Release);
    if wait == Wait::Futex {
        futex::wake(word, futex::ANYBODY);
    }
}

/// Waits until it is turn `turn`.
fn await_turn(word: &AtomicU32, turn: u32, wait: Wait) -> Result<()> {
    let mut steps = 0u32;
    let mut since = None;
    loop {
        // T2 (Acquire): pairs with T1.
        let seen = word.load(Ordering::Acquire);
        if seen == turn {
            return Ok(());
        }
        match wait {
            // No pause instruction: it would be part of the answer.
            Wait::Spin => {}
            Wait::Yield => affinity::yield_now(),
            Wait::Futex => futex::wait(word, seen, futex::ANYBODY, PATIENCE),
        }
        steps += 1;
        if steps.is_multiple_of(STEPS_PER_LOOK) || wait == Wait::Futex {
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            if waited > PATIENCE {
                return Err(Error::Timeout(format!("the other process did not answer for {waited:?}")));
            }
        }
    }
}

/// Binds the calling thread to one core.
///
/// # Errors
/// The core does not exist or this process may not use it.
pub fn pin(core: usize) -> Result<()> {
    affinity::run_on(&[core])
}

/// Elements that begin at a page, as buffers of careful programs do.
#[derive(Debug)]
pub struct PageAligned<T> {
    elements: Vec<T>,
    start: usize,
}

impl<T: Copy> PageAligned<T> {
    /// `count` elements, each of them `value`, `offset_bytes` behind the beginning of a page.
    ///
    /// The offset is for buffers of one loop: where all begin at a page, the low twelve bits of a
    /// store and of a later load agree, which the processor takes for a dependence.
    #[must_use]
    pub fn new(value: T, count: usize, offset_bytes: usize) -> Self {
        Self::within(vec![value; count + Self::spare(offset_bytes)], offset_bytes)
    }

    /// The same without an offset, where there may be no memory for it.
    ///
    /// # Errors
    /// There is none.
    pub fn try_new(value: T, count: usize) -> std::result::Result<Self, TryReserveError> {
        let (mut elements, count) = (Vec::new(), count.saturating_add(Self::spare(0)));
        elements.try_reserve_exact(count)?;
        elements.resize(count, value);
        Ok(Self::within(elements, 0))
    }

    fn spare(offset_bytes: usize) -> usize {
        (PAGE_BYTES + offset_bytes).div_ceil(size_of::<T>().max(1))
    }

    fn within(elements: Vec<T>, offset_bytes: usize) -> Self {
        let start = elements.as_ptr().align_offset(PAGE_BYTES) + offset_bytes / size_of::<T>().max(1);
        Self { elements, start }
    }

    /// The first `count` elements.
    ///
    /// # Panics
    /// There are fewer.
    #[must_use]
    pub fn first(&self, count: usize) -> &[T] {
        &self.elements[self.start..][..count]
    }

    /// The first `count` elements.
    ///
    /// # Panics
    /// There are fewer.
    #[must_use]
    pub fn first_mut(&mut self, count: usize) -> &mut [T] {
        &mut self.elements[self.start..][..count]
    }
}

/// Bytes per nanosecond (GB/s) of `memcpy` between two buffers of `bytes` that this process has in
/// its caches, as far as they fit.
#[must_use]
pub fn memcpy_rate(bytes: usize) -> f64 {
    let source = PageAligned::new(1u8, bytes, 0);
    let mut target = PageAligned::new(0u8, bytes, SKEW_BYTES);
    rate(bytes, || black_box(target.first_mut(bytes)).copy_from_slice(black_box(source.first(bytes))))
}

/// Bytes of one operand per nanosecond (GB/s) of the float sum `inout += source` in place, by the
/// kernel that the collectives use here.
///
/// # Errors
/// `InvalidArgument` when `bytes` is no multiple of a float's size.
pub fn reduce_f32_sum_rate(bytes: usize) -> Result<f64> {
    let count = bytes / size_of::<f32>();
    let Some(sum) = kernel(Datatype::Float, Operator::Sum) else {
        return Err(Error::InvalidArgument("there is no kernel for a float sum".into()));
    };
    if count * size_of::<f32>() != bytes {
        return Err(Error::InvalidArgument(format!("{bytes} bytes are no whole floats")));
    }
    let source = PageAligned::new(0f32, count, 0);
    let mut inout = PageAligned::new(0f32, count, SKEW_BYTES);
    Ok(rate(bytes, || {
        let inout = black_box(inout.first_mut(count));
        let source = black_box(source.first(count));
        // SAFETY: two separate buffers of `count` floats each.
        unsafe { (sum.two)(inout.as_mut_ptr().cast(), source.as_ptr().cast(), count) };
    }))
}

/// Bytes per nanosecond (GB/s) of reading `bytes` at `address` of process `pid` by the kernel's
/// single copy.
///
/// # Errors
/// The kernel's refusal: no such process, no permission, nothing mapped there.
pub fn process_vm_readv_rate(pid: i32, address: usize, bytes: usize) -> Result<f64> {
    let mut target = PageAligned::new(0u8, bytes, SKEW_BYTES);
    read_process(pid, address, target.first_mut(bytes))?;
    let mut outcome = Ok(());
    let gigabytes_per_s = rate(bytes, || {
        if let Err(error) = read_process(pid, address, target.first_mut(bytes)) {
            outcome = Err(error);
        }
    });
    outcome.map(|()| gigabytes_per_s)
}

/// Fills `target` from `address` on in process `pid`.
fn read_process(pid: i32, address: usize, target: &mut [u8]) -> Result<()> {
    let pid = pid.unsigned_abs();
    // SAFETY: `target` is ours to write.
    let outcome = unsafe { remote::copy(Way::Read, pid, address, target.as_mut_ptr(), target.len()) };
    outcome.map_err(|partial| Error::system(Way::Read.api(), partial.errno))
}

/// Bytes per nanosecond of `work`, which handles `bytes`: the median of several repeats that each
/// last long enough for the clock.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    const REPEAT_NS: f64 = 3e6;
    let mut time = |iterations: u32| {
        let start = Instant::now();
        for _ in 0..iterations {
            work();
        }
        nanoseconds(start.elapsed()) / f64::from(iterations)
    };
    let mut iterations = 1;
    while time(iterations) * f64::from(iterations) < REPEAT_NS {
        iterations *= 2;
    }
    let mut times: Vec<f64> = (0..REPEATS).map(|_| time(iterations)).collect();
    #[allow(clippy::cast_precision_loss)] // sizes here are far below 2^53
    let bytes = bytes as f64;
    bytes / median(&mut times)
}

/// The middle value; 0 for none.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_take_turns_in_every_way_of_waiting() {
        let first = Arena::create(4096).unwrap();
        let second = Arena::attach(&first.path()).unwrap();
        for wait in [Wait::Spin, Wait::Yield, Wait::Futex] {
            first.reset();
            std::thread::scope(|scope| {
                let answer = scope.spawn(|| second.ping_pong(Side::Second, wait, 10, 2).unwrap());
                assert_eq!(first.ping_pong(Side::First, wait, 10, 2).unwrap().len(), 2);
                assert_eq!(answer.join().unwrap().len(), 2);
            });
            assert_eq!(first.word().load(Ordering::Acquire), 40);
        }
    }

    #[test]
    fn buffers_begin_where_they_are_told_to() {
        let mut buffer = PageAligned::new(7u64, 100, 128);
        assert_eq!(buffer.first(1).as_ptr().addr() % PAGE_BYTES, 128);
        assert_eq!(buffer.first_mut(100), [7; 100]);
    }

    #[test]
    fn a_copy_that_does_not_fit_is_refused() {
        let arena = Arena::create(64).unwrap();
        assert!(arena.copy_from_peer(Side::First, 65, 1).is_err());
    }

    #[test]
    fn reads_memory_of_a_process_and_reports_a_bad_address() {
        let source: Vec<u8> = (0..100).collect();
        let mut target = vec![0u8; 100];
        let pid = i32::try_from(std::process::id()).unwrap();
        // A container may forbid the call altogether; then its error is the answer.
        if read_process(pid, source.as_ptr().addr(), &mut target).is_ok() {
            assert_eq!(target, source);
            assert!(read_process(pid, 0, &mut target).is_err());
        }
    }
}
