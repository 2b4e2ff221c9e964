//! What measures in a search: a communicator whose settings change, and the journal of what it has measured.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use han::files::read_text;
use han::select::Inter;
use han::tune::compare::median;
use han::tune::{Bench, Entry, Journal, Method, Space, Work, works};
use han::{Call, Collective, Communicator, Op, Operator, SharedVec};
use reduce_kernels::say;
use shm_core::sys::clock::now_ns;

use super::{HowArgs, Result, bar, file};
use crate::bench::{Memory, configured, filled};
use crate::output::{ReaderLeft, is_reader_left, stdout};

/// Bounds of the iterations of one measurement.
const ITERATIONS: std::ops::RangeInclusive<u64> = 4..=50;
/// The same for tasks, of which one run has several that are alike.
const TASK_ITERATIONS: std::ops::RangeInclusive<u64> = 3..=8;
/// Bytes that take as long as everything around them, about.
const FREE_BYTES: usize = 256 << 10;

/// Measures on a communicator whose settings it changes.
pub(super) struct Worker<'a> {
    world: &'a Communicator,
    tuned: Communicator,
    /// What is set of the job, which holds where a configuration leaves something open.
    set: Inter,
    settings: Option<Inter>,
    send: Vector,
    receive: Vector,
    nanoseconds: u64,
    journal: Journal,
    /// Where rank 0 keeps the journal, if it does.
    kept_in: Option<(PathBuf, File)>,
    /// Weights of what is done, and of what there is to do.
    done: u64,
    expected: VecDeque<u64>,
    reports: bool,
    /// Operations so far, by which their results are told apart.
    stamp: u16,
}

/// A rank's buffer.
enum Vector {
    Private(Vec<f32>),
    Shared(SharedVec<f32>),
}

impl Vector {
    fn new(communicator: &Communicator, memory: Memory, count: usize) -> Result<Self> {
        Ok(match memory {
            Memory::Private => Self::Private(filled(0.0, count)?),
            Memory::Shared => Self::Shared(communicator.alloc(count)?),
        })
    }

    fn first(&mut self, count: usize) -> &mut [f32] {
        match self {
            Self::Private(vector) => &mut vector[..count],
            Self::Shared(vector) => &mut vector[..count],
        }
    }
}

/// The weight of a measurement in the progress bar.
fn weight(work: &Work) -> u64 {
    1 + (work.bytes / FREE_BYTES) as u64
}

impl<'a> Worker<'a> {
    /// For vectors of up to `longest` bytes, and tasks of up to the longest of `segments`.
    pub(super) fn new(world: &'a Communicator, how: &HowArgs, longest: usize, segments: &[usize]) -> Result<Self> {
        let count = longest.max(segments.last().map_or(0, |bytes| 8 * bytes)) / size_of::<f32>();
        Ok(Self {
            world,
            tuned: world.dup()?,
            set: configured(&how.set)?.inter,
            settings: None,
            send: Vector::new(world, how.alloc, count)?,
            receive: Vector::new(world, how.alloc, count)?,
            nanoseconds: how.ms * 1_000_000,
            journal: Journal::new(""),
            kept_in: None,
            done: 0,
            expected: VecDeque::new(),
            reports: how.report_progress && world.rank() == 0,
            stamp: 0,
        })
    }

    /// Keeps what is measured at `path`, and takes what is there if the search `resumes`.
    pub(super) fn keep(&mut self, title: &str, path: PathBuf, resumes: bool) -> Result<()> {
        self.journal = Journal::new(&String::from_utf8_lossy(&self.as_rank_0_has_it(title.as_bytes())?));
        let mut text = String::new();
        let is_first = self.world.rank() == 0;
        let opened = if is_first { self.open(&path, resumes).map(|known| text = known) } else { Ok(()) };
        self.all_go_on(opened)?;
        let text = self.as_rank_0_has_it(text.as_bytes())?;
        if !text.is_empty() {
            let text = String::from_utf8_lossy(&text);
            self.journal.resume(&text).map_err(|why| format!("{} {why}", path.display()))?;
        }
        let started =
            self.kept_in.as_mut().map_or(Ok(()), |(_, file)| match text.iter().rposition(|byte| *byte == b'\n') {
                // What was cut short would spoil the next line.
                Some(end) => file.set_len(end as u64 + 1),
                None => file.set_len(0).and_then(|()| file.write_all(self.journal.head().as_bytes())),
            });
        let started = started.map_err(|e| format!("cannot write {}: {e}", path.display()).into());
        self.all_go_on(started)
    }

    /// Opens the journal; what it has, if the search `resumes`.
    fn open(&mut self, path: &Path, resumes: bool) -> Result<String> {
        if resumes && !path.exists() {
            say(&format!("han tune: {} is not there: the search starts anew", path.display()));
        }
        self.kept_in = Some((path.to_owned(), file::open(path)?));
        let read = if resumes { read_text(path) } else { Ok(String::new()) };
        read.map_err(|e| format!("{}: {e}", path.display()).into())
    }

    /// Foresees what `methods` will measure.
    pub(super) fn expect(&mut self, space: &Space, methods: &[Method], turns: usize) {
        let searched = methods.iter().flat_map(|&method| works(space, method)).map(|work| weight(&work));
        let picks = methods.len() as u64 + 1;
        let compared = space.cases().map(|case| picks * turns as u64 * (1 + (case.bytes / FREE_BYTES) as u64));
        self.expected = searched.chain(compared).collect();
    }

    fn show(&mut self, work: &Work) -> Result<()> {
        self.done += weight(work);
        if self.reports {
            let total = self.expected.iter().sum::<u64>().max(self.done);
            let what = format!("{} {} {}", work.by, work.collective.name(), work.bytes);
            stdout().write_all(bar::line(self.done, total, &what).as_bytes())?;
        }
        Ok(())
    }

    /// The same outcome on all ranks: that of rank 0, which alone writes.
    pub(super) fn all_go_on(&self, outcome: Result<()>) -> Result<()> {
        const LEFT: u8 = 2;
        let mut failed = [match &outcome {
            Ok(()) => 0,
            Err(error) if is_reader_left(&**error) => LEFT,
            Err(_) => 1,
        }];
        let told = self.world.bcast(&mut failed, 0);
        // What has failed here says more than that others have left because of it.
        outcome?;
        told?;
        match failed[0] {
            0 => Ok(()),
            // That is said by nobody.
            LEFT => Err(ReaderLeft.into()),
            _ => Err("rank 0 cannot go on".into()),
        }
    }

    fn as_rank_0_has_it(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut length = [bytes.len() as u64];
        self.world.bcast(&mut length, 0)?;
        let mut all = bytes.to_vec();
        all.resize(usize::try_from(length[0])?, 0);
        self.world.bcast(&mut all, 0)?;
        Ok(all)
    }

    /// All ranks.
    pub(super) fn world(&self) -> &'a Communicator {
        self.world
    }

    /// The greatest of all ranks' values, one by one.
    pub(super) fn greatest(&self, mut values: Vec<f64>) -> Result<Vec<f64>> {
        self.world.allreduce_in_place(&mut values, Operator::Max)?;
        Ok(values)
    }

    fn go(&mut self, work: &Work) -> Result<Entry> {
        let began = now_ns();
        if self.settings != Some(work.settings) {
            self.tuned.choose_by(Some(self.set.with(&work.settings)))?;
            self.settings = Some(work.settings);
        }
        let first = self.once(work)?;
        self.check(work)?;
        // Of many chunks even the first run tells well enough how many there is time for.
        let once = if work.chunks.is_some() { first } else { self.once(work)? };
        let bounds = if work.chunks.is_some() { TASK_ITERATIONS } else { ITERATIONS };
        let all = self.greatest(vec![once])?[0];
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // times
        let wanted = (self.nanoseconds as f64 / 1e3 / all.max(1.0)) as u64;
        let iterations = usize::try_from(wanted.clamp(*bounds.start(), *bounds.end()))?;
        let us = match work.chunks {
            None => {
                let times = (0..iterations).map(|_| self.once(work)).collect::<Result<_>>()?;
                vec![vec![median(&mut self.greatest(times)?)]]
            }
            Some(chunks) => self.by_task(work, chunks, iterations)?,
        };
        self.check(work)?;
        #[allow(clippy::cast_precision_loss)] // nanoseconds
        let spent_s = self.greatest(vec![(now_ns() - began) as f64 * 1e-9])?[0];
        Ok(Entry { us, spent_s })
    }

    /// By rank: the costs of its tasks in `iterations` runs.
    fn by_task(&mut self, work: &Work, chunks: usize, iterations: usize) -> Result<Vec<Vec<f64>>> {
        let splits = work.settings.splits;
        let mut runs = Vec::new();
        for _ in 0..iterations {
            self.prepare(work);
            self.world.barrier()?;
            let tuned = self.tuned.clone();
            let ends = tuned.run_timed(&self.call(work)?)?;
            let ends: Vec<_> = ends.iter().map(|end| (end.kind, end.chunk, end.after.as_secs_f64() * 1e6)).collect();
            runs.push(han::tune::model::tasks(&ends, chunks, work.collective, splits));
        }
        let tasks = runs[0].len();
        // The medians of when each was done, so that their sum is that of a run.
        let done = |run: &Vec<f64>, task: usize| run[..=task].iter().sum::<f64>();
        let done: Vec<f64> =
            (0..tasks).map(|task| median(&mut runs.iter().map(|run| done(run, task)).collect::<Vec<_>>())).collect();
        let costs: Vec<f64> =
            (0..tasks).map(|task| done[task] - task.checked_sub(1).map_or(0.0, |before| done[before])).collect();
        let (rank, size) = (self.world.rank(), self.world.size());
        let mut all = vec![0.0; size * tasks];
        all[rank * tasks..][..tasks].copy_from_slice(&costs);
        Ok(self.greatest(all)?.chunks(tasks).map(<[f64]>::to_vec).collect())
    }

    /// Microseconds of this rank's operation, after a barrier.
    fn once(&mut self, work: &Work) -> Result<f64> {
        self.prepare(work);
        // The same whatever is measured: the order in which ranks leave it is a head start for some forms.
        self.world.barrier()?;
        let tuned = self.tuned.clone();
        let call = self.call(work)?;
        let began = now_ns();
        tuned.run(&call)?;
        #[allow(clippy::cast_precision_loss)] // nanoseconds
        Ok((now_ns() - began) as f64 * 1e-3)
    }

    /// What the next operation works on: every one gives another result.
    fn prepare(&mut self, work: &Work) {
        self.stamp = self.stamp % 1000 + 1;
        let (value, is_root) = (f32::from(self.stamp), self.world.rank() == 0);
        let count = work.bytes / size_of::<f32>();
        let send = self.send.first(count);
        for place in places(count) {
            send[place] = if work.collective == Collective::Bcast && !is_root { 0.0 } else { value };
        }
    }

    fn call(&mut self, work: &Work) -> Result<Call<'_>> {
        let count = work.bytes / size_of::<f32>();
        let (send, receive) = (self.send.first(count), self.receive.first(count));
        let sum = Op::from(Operator::Sum);
        Ok(match work.collective {
            Collective::Barrier => Call::barrier(),
            Collective::Bcast => Call::bcast(send, 0),
            Collective::Reduce => Call::reduce(send, receive, sum, 0)?,
            Collective::Allreduce => Call::allreduce(send, receive, sum)?,
        })
    }

    /// Whether the last operation gave what it should, where `prepare` has written.
    fn check(&mut self, work: &Work) -> Result<()> {
        let (rank, size) = (self.world.rank(), u16::try_from(self.world.size())?);
        let value = f32::from(self.stamp);
        let count = work.bytes / size_of::<f32>();
        let (got, wanted) = match work.collective {
            Collective::Barrier => return Ok(()),
            Collective::Reduce if rank != 0 => return Ok(()),
            Collective::Bcast => (self.send.first(count), value),
            Collective::Reduce | Collective::Allreduce => (self.receive.first(count), value * f32::from(size)),
        };
        match places(count).find(|&place| (got[place] - wanted).abs() > 0.0) {
            Some(place) => Err(format!("wrong result: element {place} is {}, not {wanted}: {work}", got[place]).into()),
            None => Ok(()),
        }
    }
}

/// Where results are checked: first, last and between.
fn places(count: usize) -> impl Iterator<Item = usize> {
    [0, count / 3, count / 2, count.saturating_sub(1)].into_iter().filter(move |&place| place < count)
}

impl Bench for Worker<'_> {
    type Error = Box<dyn std::error::Error>;

    fn measure(&mut self, work: &Work) -> Result<Entry> {
        let entry = match self.journal.get(work) {
            Some(entry) => entry.clone(),
            None => {
                let entry = self.go(work)?;
                let line = self.journal.put(work, entry.clone());
                let kept = self.kept_in.as_mut().map_or(Ok(()), |(path, file)| {
                    file.write_all(line.as_bytes()).map_err(|e| format!("{}: {e}", path.display()).into())
                });
                let shown = kept.and_then(|()| self.show(work));
                self.all_go_on(shown)?;
                return Ok(entry);
            }
        };
        self.done += weight(work);
        Ok(entry)
    }
}
