//! Ranks that are missing, gone, or do something else; strangers. Everywhere the error must be the same, and name
//! whoever is to blame.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use net_fabric::algorithm::{Algorithm, Collective, Tree};
use net_fabric::engine::{Engine, Fingerprint, Host, Key, Policy, Secret, Settings, Watch};
use net_fabric::transport::loopback::Options;
use net_fabric::transport::{Loopback, Posted, Tag, Token, Transport};
use net_fabric::{Error, Result};

use crate::mortal::Mortal;
use crate::rig::{Case, DEADLINE, Part, Random};

pub(crate) const SECRET: Settings = Settings { secret: Secret([5; 16]), operations: 64 };

/// Writes down what is said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notebook {
    said: Arc<Mutex<Vec<String>>>,
}

impl Host for Notebook {
    fn call(&self, fingerprint: Fingerprint) -> String {
        let name = ["barrier", "bcast", "reduce", "allreduce"][usize::try_from(fingerprint.0[0] % 256).unwrap() - 1];
        format!("{name}(count {}, root {})", fingerprint.0[1], fingerprint.0[0] >> 8)
    }

    fn speak(&mut self, sentence: &str) {
        self.said.lock().unwrap().push(sentence.to_owned());
    }
}

pub(crate) fn patient() -> Watch {
    Watch {
        ask_after: Duration::from_millis(1),
        speak_after: None,
        listen: Duration::from_millis(1),
        ..Watch::default()
    }
}

/// Engines that look after what takes long, and what has become of them.
pub(crate) struct World<T: Transport> {
    pub(crate) engines: Vec<Engine<T>>,
    pub(crate) notebook: Notebook,
    pub(crate) parts: Vec<Part>,
    pub(crate) errors: Vec<Option<Error>>,
    /// Ranks that let nothing move.
    pub(crate) still: Vec<usize>,
}

pub(crate) fn world(size: usize, watch: Watch, options: Options) -> World<Loopback> {
    World::new(Loopback::world(size, options), watch)
}

impl<T: Transport> World<T> {
    pub(crate) fn new(ranks: Vec<T>, watch: Watch) -> Self {
        let notebook = Notebook::default();
        let size = ranks.len();
        let engine = |rank| Engine::watched(rank, SECRET, watch, Box::new(notebook.clone()));
        let engines = ranks.into_iter().map(engine).collect();
        Self { engines, notebook, parts: Vec::new(), errors: vec![None; size], still: Vec::new() }
    }

    fn size(&self) -> usize {
        self.errors.len()
    }

    pub(crate) fn start(&mut self, rank: usize, case: Case, sequence: u32) {
        self.start_on(rank, case, Key { communicator: 0, sequence });
    }

    pub(crate) fn start_on(&mut self, rank: usize, case: Case, key: Key) {
        let mut part = case.part(rank, self.size(), key.sequence as usize);
        let started = part.try_start(&mut self.engines[rank], key);
        self.parts.push(part);
        if let Err(error) = started {
            self.errors[rank].get_or_insert(error);
        }
    }

    pub(crate) fn step(&mut self) {
        for (rank, engine) in self.engines.iter_mut().enumerate() {
            if self.still.contains(&rank) {
                continue;
            }
            if let Err(error) = engine.progress().and_then(|_| engine.look()) {
                self.errors[rank].get_or_insert(error);
            }
        }
    }

    /// Lets all move until `done`.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !done(self) {
            assert!(Instant::now() < deadline, "{what}: errors {:?}", self.errors);
            self.step();
        }
    }

    /// Lets all move until nothing is outstanding, or a rank has failed.
    pub(crate) fn finish(&mut self) {
        self.until("all end", |world| {
            world.errors.iter().any(Option::is_some) || world.engines.iter().all(|engine| engine.outstanding() == 0)
        });
    }

    /// Waits until all these ranks have an error.
    pub(crate) fn failures(&mut self, ranks: &[usize]) -> Vec<Error> {
        self.until("every rank must fail", |world| ranks.iter().all(|&rank| world.errors[rank].is_some()));
        let errors: Vec<_> = ranks.iter().map(|&rank| self.errors[rank].clone().unwrap()).collect();
        for (&rank, error) in ranks.iter().zip(&errors) {
            let mut part = BCAST.part(rank, self.size(), 0);
            let again = part.try_start(&mut self.engines[rank], Key { communicator: 9, sequence: 0 }).unwrap_err();
            assert_eq!(again.to_string(), error.to_string(), "later operations fail with the same error");
        }
        errors
    }

    /// As [`failures`](Self::failures), where there is but one to be found.
    pub(crate) fn common_error(&mut self, ranks: &[usize]) -> Error {
        let errors = self.failures(ranks);
        for error in &errors {
            assert_eq!(error.to_string(), errors[0].to_string());
        }
        errors[0].clone()
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.notebook.said.lock().unwrap().clone()
    }
}

pub(crate) const BCAST: Case = Case {
    collective: Collective::Bcast,
    algorithm: Algorithm::Tree(Tree::Chain),
    policy: Policy::EventDriven { sends: 2, recvs: 3 },
    root: 0,
    count: 4,
    in_place: false,
    commutative: true,
    chunk_bytes: 1000,
    slots: 2,
};

pub(crate) const ALLREDUCE: Case =
    Case { collective: Collective::Allreduce, algorithm: Algorithm::RecursiveDoubling, ..BCAST };

#[test]
fn other_operands_are_a_mismatch_on_all_ranks() {
    for count in [3, 5, 400] {
        let mut world = world(4, patient(), Options::default());
        for rank in 0..4 {
            world.start(rank, Case { count: if rank == 2 { count } else { 4 }, ..ALLREDUCE }, 0);
        }
        // Several ranks find it, each beside another one.
        for error in world.failures(&[0, 1, 2, 3]) {
            assert!(matches!(error, Error::Mismatch(_)), "{error}");
            let (error, odd) = (error.to_string(), format!("rank 2 called allreduce(count {count}, root 0)"));
            assert!([&odd, "called allreduce(count 4, root 0)"].iter().all(|side| error.contains(*side)), "{error}");
        }
    }
}

#[test]
fn ranks_that_wait_for_each_other_find_their_mismatch() {
    let mut world = world(3, patient(), Options::default());
    world.start(0, Case { root: 1, ..BCAST }, 0);
    world.start(1, Case { root: 2, ..BCAST }, 0);
    world.start(2, Case { root: 1, ..BCAST }, 0);
    for error in world.failures(&[0, 1, 2]) {
        assert!(matches!(error, Error::Mismatch(_)), "{error}");
        let error = error.to_string();
        assert!(error.contains("operation #0 on communicator 0: rank "), "{error}");
        assert!(error.contains("rank 1 called bcast(count 4, root 2)"), "{error}");
    }
}

#[test]
fn roots_that_have_not_waited_learn_it_later() {
    let mut world = world(2, patient(), Options::default());
    for rank in 0..2 {
        world.start(rank, BCAST, 0);
        world.start(rank, Case { root: rank, ..BCAST }, 1);
        world.start(rank, BCAST, 2);
        world.start(rank, ALLREDUCE, 3);
    }
    let error = world.common_error(&[0, 1]).to_string();
    let expected = "mismatched collective: operation #1 on communicator 0: rank 0 called bcast(count 4, root 0), but \
                    rank 1 called bcast(count 4, root 1)";
    assert_eq!(error, expected);
}

/// A bcast without messages, of which two in a row differ.
fn nothing(sequence: u32) -> Case {
    Case { count: 0, root: sequence as usize % 2, ..BCAST }
}

#[test]
fn a_call_that_others_have_long_left_is_a_mismatch() {
    let mut world = world(3, patient(), Options::default());
    for sequence in 0..10_000 {
        (0..2).for_each(|rank| world.start(rank, nothing(sequence), sequence));
    }
    (0..5).for_each(|sequence| world.start(2, nothing(sequence), sequence));
    world.start(2, ALLREDUCE, 5);
    let error = world.common_error(&[0, 1, 2]).to_string();
    let one = "mismatched collective: operation #5 on communicator 0: rank ";
    let other = " called bcast(count 0, root 1), but rank 2 called allreduce(count 4, root 0)";
    assert!(error.starts_with(one) && error.ends_with(other), "{error}");
}

#[test]
fn what_differed_before_two_ranks_wait_for_a_third_is_found() {
    // As far back as is looked; then further.
    for (calls, expected) in [
        (
            50,
            "operation #3 on communicator 0: rank 1 called bcast(count 0, root 1), but rank 2 called bcast(count 0, root 2)",
        ),
        (500, ": rank 1 and rank 2 have called different operations before"),
    ] {
        let mut world = world(3, patient(), Options::default());
        for rank in 1..3 {
            for sequence in 0..calls {
                let differs = rank == 2 && sequence == 3;
                let case = if differs { Case { root: 2, ..nothing(sequence) } } else { nothing(sequence) };
                world.start(rank, case, sequence);
            }
            world.start(rank, BCAST, calls);
        }
        // Both look, and each keeps the first that it finds.
        for error in world.failures(&[0, 1, 2]) {
            let error = error.to_string();
            assert!(error.starts_with("mismatched collective: ") && error.ends_with(expected), "{error}");
        }
    }
}

#[test]
fn a_rank_that_is_thousands_of_calls_behind_is_not_accused() {
    let disorder = Options { disorder: Some(3), ..Options::default() };
    let mut world = world(3, Watch { ask_after: Duration::ZERO, ..patient() }, disorder);
    let linear = Case { algorithm: Algorithm::Tree(Tree::Linear), ..BCAST };
    let case =
        |sequence: u32| if sequence < 3000 { Case { count: 1 + sequence as usize % 3, ..linear } } else { ALLREDUCE };
    for sequence in 0..=3000 {
        (0..2).for_each(|rank| world.start(rank, case(sequence), sequence));
    }
    for sequence in 0..=3000 {
        world.start(2, case(sequence), sequence);
        world.step();
    }
    world.until("all come", |world| world.engines.iter().all(|engine| engine.outstanding() == 0));
    assert!(world.errors.iter().all(Option::is_none), "{:?}", world.errors);
    world.parts.iter().for_each(Part::check);
}

#[test]
fn the_watchdog_says_who_is_missing() {
    let watch = Watch { speak_after: Some(Duration::from_millis(30)), ..patient() };
    let mut world = world(4, watch, Options::default());
    world.still = vec![3];
    for rank in 0..2 {
        world.start(rank, ALLREDUCE, 0);
    }
    // Rank 0 waits for 1, which waits for 3, which is silent; rank 1 has begun with 0. Rank 2 has not called.
    world.until("watchdogs", |world| {
        let said = world.said();
        let has = |rank: &str, what: &str| said.iter().any(|line| line.starts_with(rank) && line.contains(what));
        has("rank 0 ", "in allreduce(count 4, root 0) #0 on communicator 0 for rank 2, which has not called it")
            && has("rank 1 ", "for rank 3, which has been silent for ")
    });
    assert!(world.errors.iter().all(Option::is_none), "nothing has failed");
    // And nothing is lost.
    world.still.clear();
    for rank in 2..4 {
        world.start(rank, ALLREDUCE, 0);
    }
    world.until("all come", |world| world.engines.iter().all(|engine| engine.outstanding() == 0));
    world.parts.iter().for_each(Part::check);
}

#[test]
fn a_call_of_many_parts_is_spoken_of_once() {
    let watch = Watch { speak_after: Some(Duration::from_millis(40)), ..patient() };
    let mut world = world(3, watch, Options::default());
    world.still = vec![1, 2];
    let (key, fingerprint) = (Key { communicator: 0, sequence: 7 }, Fingerprint([4, 30_000]));
    let call = world.engines[0].announce(key, 0, fingerprint).unwrap();
    let begun = Instant::now();
    // All before anything moves, so that whatever is said is said of all of them.
    for sequence in 0..6 {
        // Halves of its parts wait for one rank each.
        let root = 1 + sequence as usize % 2;
        let mut part = Case { root, algorithm: Algorithm::Tree(Tree::Linear), ..BCAST }.part(0, 3, 0);
        part.start_as(&mut world.engines[0], Key { communicator: 1, sequence }, call).unwrap();
        world.parts.push(part);
        std::thread::sleep(Duration::from_millis(5));
    }
    while begun.elapsed() < Duration::from_millis(500) {
        world.step();
    }
    let (said, ms) = (world.said(), begun.elapsed().as_millis());
    // After 40, 80, 160 ms and so on, but not once for each part.
    let most = (ms / 40).ilog2() as usize + 1;
    assert!((1..=most).contains(&said.len()), "in {ms} ms: {said:?}");
    let both = |line: &String| ["rank 1, which", "rank 2, which"].iter().all(|rank| line.contains(rank));
    assert!(said.iter().all(|line| line.contains("(count 30000, root 0) #7 on communicator 0 for ")), "{said:?}");
    assert!(said.iter().all(both), "{said:?}");
}

#[test]
fn a_chain_of_waiting_ranks_is_told() {
    let watch = Watch { speak_after: Some(Duration::from_millis(30)), ..patient() };
    let mut world = world(3, watch, Options::default());
    world.start(1, BCAST, 0);
    world.start(2, BCAST, 0);
    world.until("watchdog", |world| {
        world.said().iter().any(|line| line.starts_with("rank 2 ") && line.contains("rank 1, which waits for rank 0"))
    });
}

#[test]
fn a_wait_beyond_the_limit_of_time_is_an_error() {
    let watch = Watch { time_limit: Some(Duration::from_millis(40)), ..patient() };
    let mut overdue = world(2, watch, Options::default());
    overdue.start(0, ALLREDUCE, 0);
    let error = overdue.common_error(&[0, 1]).to_string();
    assert!(error.starts_with("timeout: rank 0 has waited "), "{error}");
    assert!(error.contains(" s in allreduce(count 4, root 0) #0 on communicator 0 for rank 1, which has "), "{error}");
}

#[test]
fn time_in_which_a_rank_stands_still_is_no_waiting() {
    let watch = Watch { time_limit: Some(Duration::from_millis(1500)), ..patient() };
    let mut world = world(2, watch, Options::default());
    world.start(0, ALLREDUCE, 0);
    world.step();
    std::thread::sleep(Duration::from_secs(3));
    world.step();
    assert!(world.errors[0].is_none(), "{:?}", world.errors);
    let error = world.common_error(&[0, 1]).to_string();
    assert!(error.starts_with("timeout: rank 0 has waited 1.5 s"), "{error}");
}

#[test]
fn aborts_and_early_leavers_end_the_job_for_all() {
    let mut aborted = world(3, patient(), Options::default());
    aborted.start(0, ALLREDUCE, 0);
    let error = aborted.engines[2].abort("no more fuel");
    aborted.errors[2] = Some(error);
    let error = aborted.common_error(&[0, 1, 2]).to_string();
    assert_eq!(error, "rank 2 aborted the job: no more fuel");

    let mut left = world(3, patient(), Options::default());
    left.start(2, ALLREDUCE, 0);
    left.engines.truncate(2);
    let error = left.common_error(&[0, 1]).to_string();
    assert_eq!(error, "rank 2 aborted the job: it left while in allreduce(count 4, root 0) #0 on communicator 0");
}

#[test]
fn a_rank_that_is_killed_is_named_by_all_in_every_algorithm() {
    const THREADS: usize = 8;
    let size = 7;
    let chunked = Case { count: 64, chunk_bytes: 16, ..ALLREDUCE };
    let cases = crate::exact::everything(size, chunked);
    // Most of this is time that is waited out.
    let cases = &cases;
    let failed: usize = thread::scope(|scope| {
        let share = |first| cases.iter().skip(first).step_by(THREADS).copied();
        let threads: Vec<_> =
            (0..THREADS).map(|first| scope.spawn(move || killed_in(size, share(first), first as u64))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(failed > 100, "most ranks need the one that is killed, but only {failed} have failed");
}

/// Kills a rank of `size` in each of `cases`, on several transports; ranks that have failed.
fn killed_in(size: usize, cases: impl Iterator<Item = Case>, seed: u64) -> usize {
    let mut random = Random(77 + seed);
    let mut failed = 0;
    for case in cases {
        for (synchronous, brittle) in [(false, false), (true, false), (false, true)] {
            let options = Options { synchronous, disorder: Some(random.0), ..Options::default() };
            let mut world = World::new(Mortal::world(size, options, brittle), patient());
            for rank in 0..size {
                world.start(rank, case, 0);
            }
            for _ in 0..random.below(12) {
                world.step();
            }
            let victim = random.below(size);
            world.engines[victim].transport_mut().kill();
            world.still = vec![victim];
            let survivors: Vec<_> = (0..size).filter(|&rank| rank != victim).collect();
            let is_over = |world: &World<Mortal>, rank: usize| {
                world.errors[rank].is_some() || world.engines[rank].outstanding() == 0
            };
            world.until("survivors", |world| survivors.iter().all(|&rank| is_over(world, rank)));
            for &rank in &survivors {
                if let Some(error) = &world.errors[rank] {
                    assert!(matches!(error, Error::Unreachable { rank, .. } if *rank == victim), "{error}");
                    failed += 1;
                }
            }
        }
    }
    failed
}

#[test]
fn who_closes_a_connection_over_a_message_is_heard_before_it_counts_as_dead() {
    let watch = Watch { listen: Duration::from_millis(600), ..patient() };
    let ranks = Mortal::world(2, Options::default(), false).into_iter().enumerate();
    let threads: Vec<_> = ranks
        .map(|(rank, transport)| {
            thread::spawn(move || {
                let mut engine = Engine::watched(transport, SECRET, watch, Box::new(Notebook::default()));
                // The root does not know its call any more when the other one asks.
                let mut part = Case { count: 4 + 5 * rank, ..BCAST }.part(rank, 2, 0);
                part.start(&mut engine, Key { communicator: 0, sequence: 0 });
                if rank == 0 {
                    engine.forget(0);
                    engine.transport_mut().lose(1);
                }
                let deadline = Instant::now() + DEADLINE;
                loop {
                    assert!(Instant::now() < deadline);
                    if let Err(error) = engine.progress() {
                        return error.to_string();
                    }
                }
            })
        })
        .collect();
    let errors = threads.into_iter().map(|thread| thread.join().unwrap());
    let expected = "mismatched collective: operation #0 on communicator 0: rank 1 called bcast(count 9, root 0), but rank 0 \
                    sends 16 bytes where 36 are expected";
    errors.for_each(|error| assert_eq!(error, expected));
}

/// Sends bytes that no engine has sealed.
fn intrude(rank: &mut Loopback, tag: Tag, bytes: &'static [u8]) {
    // SAFETY: the bytes live for ever.
    let posted = unsafe { rank.send(0, tag, 0x1234_5678_9abc_def0, bytes.as_ptr(), bytes.len(), Token(0)) };
    assert_eq!(posted.unwrap(), Posted::Done);
}

#[test]
fn strangers_are_refused_and_named() {
    let mut ranks = Loopback::world(2, Options::default());
    let mut stranger = ranks.pop().unwrap();
    // Where rank 0 expects the first message, of this length and of another; and where notes come.
    intrude(&mut stranger, Tag(0), &[0xff; 16]);
    intrude(&mut stranger, Tag(0), &[0xff; 5]);
    intrude(&mut stranger, Tag(1 << 47), &[3; 512]);
    intrude(&mut stranger, Tag(1 << 47), &[3; 7]);
    let mut world = World::new(ranks, patient());
    let mut part = ALLREDUCE.part(0, 2, 0);
    let key = Key { communicator: 0, sequence: 0 };
    part.try_start(&mut world.engines[0], key).unwrap();
    world.parts.push(part);
    world.until("strangers are named", |world| world.said().len() == 3);
    let expected = "a message in the name of rank 1 does not carry the job's secret: it was refused";
    assert!(world.said().iter().filter(|line| *line == expected).count() >= 2, "{:?}", world.said());
    // The right one is welcome all the same.
    world.engines.push(Engine::watched(stranger, SECRET, patient(), Box::new(world.notebook.clone())));
    world.errors.push(None);
    world.start(1, ALLREDUCE, 0);
    world.until("the operation", |world| world.engines.iter().all(|engine| engine.outstanding() == 0));
    world.parts.iter().for_each(Part::check);
}

#[test]
fn a_receive_that_is_refused_after_a_stranger_is_posted_later() {
    for seed in 1..60 {
        let mut ranks = Loopback::world(2, Options { disorder: Some(seed), ..Options::default() });
        let mut stranger = ranks.pop().unwrap();
        let bytes = [0xff; 16];
        // SAFETY: the bytes live until it has completed.
        let send = |stranger: &mut Loopback| unsafe { stranger.send(0, Tag(0), 1, bytes.as_ptr(), 16, Token(0)) };
        let mut posted = send(&mut stranger).unwrap();
        while posted == Posted::Busy {
            posted = send(&mut stranger).unwrap();
        }
        let mut completed = Vec::new();
        while posted == Posted::Pending && completed.is_empty() {
            stranger.progress(&mut completed).unwrap();
        }
        let mut world = World::new(ranks, patient());
        let mut part = Case { root: 1, ..BCAST }.part(0, 2, 0);
        part.start(&mut world.engines[0], Key { communicator: 0, sequence: 0 });
        world.parts.push(part);
        world.until("the stranger is named", |world| !world.said().is_empty());
        world.engines.push(Engine::watched(stranger, SECRET, patient(), Box::new(world.notebook.clone())));
        world.errors.push(None);
        world.start(1, Case { root: 1, ..BCAST }, 0);
        world.finish();
        world.parts.iter().for_each(Part::check);
    }
}

#[test]
fn without_a_watch_a_stranger_is_an_error() {
    let mut ranks = Loopback::world(2, Options::default());
    let mut stranger = ranks.pop().unwrap();
    let mut engine = Engine::new(ranks.pop().unwrap(), SECRET);
    let mut part = ALLREDUCE.part(0, 2, 0);
    part.try_start(&mut engine, Key { communicator: 0, sequence: 0 }).unwrap();
    intrude(&mut stranger, Tag(0), &[0xff; 16]);
    let error = engine.progress().unwrap_err();
    assert!(matches!(error, Error::Stranger { rank: 1, .. }), "{error}");
}

#[test]
fn ranks_in_threads_wait_and_are_woken() -> Result<()> {
    let ranks = Loopback::world(3, Options { synchronous: true, ..Default::default() });
    let threads: Vec<_> = ranks
        .into_iter()
        .map(|rank| {
            std::thread::spawn(move || -> Result<()> {
                let (rank, mut engine) = (rank.rank(), Engine::new(rank, SECRET));
                for sequence in 0..300 {
                    let mut part = ALLREDUCE.part(rank, 3, sequence as usize);
                    let handle = part.try_start(&mut engine, Key { communicator: 0, sequence })?;
                    engine.wait(handle)?;
                    part.check();
                }
                Ok(())
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().unwrap())
}
