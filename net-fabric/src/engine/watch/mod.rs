//! Looks after operations that take long: who is missing, who does something else, who is gone.
//!
//! A rank that has waited for a while asks those that it waits for what they do. Whoever lets messages move answers:
//! the same; not there yet, but elsewhere; or it finds that the two do different things, which ends the job. A rank that
//! computes does not answer, and may do so for ever; but a rank that cannot be reached ends the job. Whoever ends
//! it tells all others why, so that each has the same error.

mod mail;
pub(super) mod note;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::time::{Duration, Instant};

pub(super) use mail::{Mail, Mailed};
use note::{Note, State};

use super::seal::Fingerprint;
use super::tag::Key;
use super::work::Called;
use crate::error::Error;
use crate::transport::Transport;

/// How patient an engine is.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// Waiting for so long, a rank asks those that it waits for what they do.
    pub ask_after: Duration,
    /// Waiting for so long, and for twice, four times ... as long, a rank says who is missing.
    pub speak_after: Option<Duration>,
    /// Waiting for so long in one operation is an error.
    pub time_limit: Option<Duration>,
    /// A rank that finds another one out of reach listens for so long whether that one, or a third, has said why:
    /// whoever ends a job may have to close its own end with it.
    pub listen: Duration,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            ask_after: Duration::from_millis(100),
            speak_after: Some(Duration::from_secs(30)),
            time_limit: None,
            listen: Duration::from_millis(400),
        }
    }
}

/// An operation that a rank has been seen to wait in.
#[derive(Debug)]
pub struct Wait<'a> {
    /// Which operation.
    pub key: Key,
    /// What was called.
    pub fingerprint: Fingerprint,
    /// How long it has waited.
    pub waited: Duration,
    /// World ranks that it waits for, not all if they are many.
    pub ranks: &'a [usize],
}

/// What the engine does not know by itself.
pub trait Host: Debug {
    /// The call that a fingerprint stands for, for instance `bcast(count 4, f64, root 2)`.
    fn call(&self, fingerprint: Fingerprint) -> String {
        format!("operation {:x}.{:x}", fingerprint.0[0], fingerprint.0[1])
    }

    /// A rank of the world, for instance `rank 2 (pid 4711)`.
    fn name(&self, rank: usize) -> String {
        format!("rank {rank}")
    }

    /// Says something to whoever looks after the job.
    fn speak(&mut self, sentence: &str) {
        reduce_kernels::say(&format!("han: watchdog: {sentence}"));
    }

    /// This rank has waited for long, or (`None`) one such wait is over.
    fn waits(&mut self, wait: Option<&Wait<'_>>) {
        let _ = wait;
    }
}

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What counts as waiting of the time between two looks: who waits looks more often, so in the rest the process has been
/// stopped, or has done something else.
const MOST_BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// Longest time between two questions to a rank.
const ASK_AT_LEAST_EVERY: Duration = Duration::from_secs(2);
/// How long a rank has to say what it does instead, when its messages have shown that it does something else.
const EXPLAINS_WITHIN: Duration = Duration::from_secs(1);
/// Strangers that are spoken of.
const STRANGERS_NAMED: u64 = 8;

/// What an engine needs in order to look after its operations.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) watch: Watch,
    pub(super) host: Box<dyn Host>,
    pub(super) mail: Mail,
    /// The ranks that this one waits for.
    peers: HashMap<usize, Peer>,
    suspects: Vec<Suspect>,
    /// Calls that this rank has waited in at the last look, and after how much waiting each is spoken of next.
    pub(super) spoken: BTreeMap<Called, Duration>,
    looked: Option<Instant>,
    strangers: u64,
    /// The job's end was another rank's news.
    pub(super) told: bool,
}

/// A rank that this one waits for.
#[derive(Debug)]
struct Peer {
    ask_at: Instant,
    interval: Duration,
    silent_since: Option<Instant>,
    answer: Option<State>,
    /// This rank waited for it at the last look.
    awaited: bool,
}

/// A rank whose message did not belong to the operation at hand.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) rank: usize,
    /// What it is asked about.
    pub(super) called: Called,
    /// If it does not say what it does instead.
    pub(super) error: Error,
    /// How many calls before that it may yet be asked about.
    pub(super) steps: u32,
    until: Instant,
}

impl Suspect {
    pub(super) fn new(rank: usize, called: Called, error: Error, steps: u32) -> Self {
        Self { rank, called, error, steps, until: Instant::now() + EXPLAINS_WITHIN }
    }
}

impl Watcher {
    pub(super) fn new(watch: Watch, host: Box<dyn Host>, transport: &impl Transport) -> Self {
        Self {
            watch,
            host,
            mail: Mail::new(transport),
            peers: HashMap::new(),
            suspects: Vec::new(),
            spoken: BTreeMap::new(),
            looked: None,
            strangers: 0,
            told: false,
        }
    }

    /// How long this rank has waited since the last look, if it is time for another one.
    pub(super) fn is_time(&mut self, now: Instant) -> Option<Duration> {
        let passed = self.looked.map(|looked| now.saturating_duration_since(looked));
        if passed.is_some_and(|passed| passed < LOOK_EVERY) {
            return None;
        }
        self.looked = Some(now);
        for peer in self.peers.values_mut() {
            peer.awaited = false;
        }
        Some(passed.unwrap_or_default().min(MOST_BETWEEN_LOOKS))
    }

    /// This rank has waited long for `rank`: asks it, if it is time to.
    pub(super) fn await_rank(&mut self, rank: usize, question: &Note, now: Instant, transport: &impl Transport) {
        let interval = self.watch.ask_after;
        let new = || Peer { ask_at: now, interval, silent_since: None, answer: None, awaited: false };
        let peer = self.peers.entry(rank).or_insert_with(new);
        // Once a look, whatever the number of operations; and only when the last question has gone out.
        if !peer.awaited && now >= peer.ask_at && !self.mail.is_writing_to(rank) {
            peer.silent_since.get_or_insert(now);
            peer.ask_at = now + peer.interval;
            peer.interval = (2 * peer.interval).min(ASK_AT_LEAST_EVERY);
            self.mail.write(rank, question, transport);
        }
        peer.awaited = true;
    }

    /// Whether a call that this rank has waited in for so long is to be spoken of, after ever longer waits.
    pub(super) fn is_time_to_speak(&mut self, called: Called, waited: Duration) -> bool {
        let Some(first) = self.watch.speak_after else { return false };
        let speak_at = self.spoken.entry(called).or_insert(first);
        let is_time = waited >= *speak_at;
        if is_time {
            *speak_at = speak_at.saturating_mul(2);
        }
        is_time
    }

    /// Forgets ranks that are not waited for any more.
    pub(super) fn forget_others(&mut self) {
        self.peers.retain(|_, peer| peer.awaited);
    }

    /// A rank has answered. It is returned if it is known to do something else.
    pub(super) fn answered(&mut self, rank: usize, key: Key, state: State) -> Option<Suspect> {
        if let Some(peer) = self.peers.get_mut(&rank) {
            peer.silent_since = None;
            peer.answer = Some(state);
        }
        let at = self.suspects.iter().position(|suspect| suspect.rank == rank && suspect.called.key == key)?;
        Some(self.suspects.swap_remove(at))
    }

    /// A rank is known to do something else: asks what, before that is an error.
    pub(super) fn suspect(&mut self, suspect: Suspect, transport: &impl Transport) {
        self.mail.write(suspect.rank, &Note::Ask(suspect.called), transport);
        self.suspects.push(suspect);
    }

    /// What a rank is suspected of.
    pub(super) fn suspicion(&self, rank: usize) -> Option<Error> {
        self.suspects.iter().find(|suspect| suspect.rank == rank).map(|suspect| suspect.error.clone())
    }

    /// The error of a rank that did not explain itself in time.
    pub(super) fn unexplained(&self) -> Option<Error> {
        let now = (!self.suspects.is_empty()).then(Instant::now)?;
        self.suspects.iter().find(|suspect| now >= suspect.until).map(|suspect| suspect.error.clone())
    }

    /// Something came in a rank's name that the rank has not sent.
    pub(super) fn refuse(&mut self, rank: usize) {
        self.strangers += 1;
        if self.strangers <= STRANGERS_NAMED {
            let name = self.host.name(rank);
            let sentence = format!("a message in the name of {name} does not carry the job's secret: it was refused");
            self.host.speak(&sentence);
        }
    }

    pub(super) fn operation(&self, Called { key, fingerprint, .. }: Called) -> String {
        format!("{} #{} on communicator {}", self.host.call(fingerprint), key.sequence, key.communicator)
    }

    /// A rank that is waited for, and what is known of it.
    pub(super) fn describe(&self, rank: usize, now: Instant) -> String {
        let name = self.host.name(rank);
        let Some(peer) = self.peers.get(&rank) else { return name };
        let silent = peer.silent_since.map(|since| now.saturating_duration_since(since));
        // An answer holds until the next one is overdue.
        if let Some(silent) = silent.filter(|&silent| peer.answer.is_none() || silent > peer.interval) {
            return format!("{name}, which has been silent for {:.1} s", silent.as_secs_f64());
        }
        match peer.answer {
            Some(State::In { waits_for: Some(next) }) => {
                format!("{name}, which waits for {}", self.host.name(next as usize))
            }
            Some(State::Before { doing: Some(doing) }) => format!("{name}, which is in {}", self.operation(doing)),
            Some(State::Before { doing: None }) => format!("{name}, which has not called it"),
            Some(State::Behind) => format!("{name}, which has called it"),
            Some(State::In { waits_for: None }) | None => name,
        }
    }

    /// That two ranks which call the same have differed before.
    pub(super) fn mismatch_before(&self, key: Key, one: usize, other: usize) -> Error {
        let (low, high) = (self.host.name(one.min(other)), self.host.name(one.max(other)));
        let Key { communicator, sequence } = key;
        let place = format!("operation #{sequence} on communicator {communicator}");
        Error::Mismatch(format!("{place}: {low} and {high} have called different operations before"))
    }

    /// That two ranks have called different things.
    pub(super) fn mismatch(&self, key: Key, one: (usize, Fingerprint), other: (usize, Fingerprint)) -> Error {
        // In the order of ranks, so that the text is the same whoever finds it.
        let (low, high) = if one.0 < other.0 { (one, other) } else { (other, one) };
        let called = |(rank, fingerprint)| format!("{} called {}", self.host.name(rank), self.host.call(fingerprint));
        let Key { communicator, sequence } = key;
        let (low, high) = (called(low), called(high));
        Error::Mismatch(format!("operation #{sequence} on communicator {communicator}: {low}, but {high}"))
    }
}
