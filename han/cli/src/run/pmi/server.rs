//! What a PMI-1 server answers, without any input or output.
//!
//! The ranks are not trusted to speak correctly: every line is parsed with bounds, a line out of turn
//! is a violation that names its rank, and the store has a limit.

use std::collections::HashMap;
use std::fmt::Display;

use han::bootstrap::pmi::mapping;
use han::bootstrap::pmi::wire::{self, Message};

const KVSNAME_MAX: usize = 256;
const KEYLEN_MAX: usize = 64;
const VALLEN_MAX: usize = 1024;
/// All keys and values of a job's programs together, as long as a rank is still in them.
const STORE_BYTES_MAX: usize = 64 << 20;

/// How far a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Has not spoken; it may be no PMI program at all.
    Silent,
    /// Between init and finalize.
    Active,
    /// Waits for the others.
    InBarrier,
    /// Has said good-bye; the next program of a script may say init again.
    Finalized,
}

/// What a line asks of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Say this to the rank.
    Line(String),
    /// Say this to every rank.
    ToAll(String),
    /// Say nothing yet.
    Later,
    /// End the job with this exit code.
    Abort(i32),
}

/// The state of a job's PMI.
#[derive(Debug)]
pub(super) struct Server {
    job: String,
    mapping: String,
    ranks: Vec<Rank>,
    store: HashMap<String, String>,
    store_bytes: usize,
    /// How many times every rank has said init: older stores are gone.
    oldest: usize,
}

#[derive(Clone, Debug)]
struct Rank {
    phase: Phase,
    /// Number of times it has said init; names the store, so that a script may run two programs.
    inits: usize,
}

impl Server {
    /// A server for blocks of ranks on nodes 0, 1, ...; `job` begins the stores' names.
    pub(super) fn new(job: &str, blocks: &[usize]) -> Self {
        let rank = Rank { phase: Phase::Silent, inits: 0 };
        let ranks = vec![rank; blocks.iter().sum()];
        let (job, mapping) = (job.to_owned(), mapping::format(blocks));
        Self { job, mapping, ranks, store: HashMap::new(), store_bytes: 0, oldest: 0 }
    }

    pub(super) fn phase(&self, rank: usize) -> Phase {
        self.ranks[rank].phase
    }

    /// Takes a line of `rank`; an error says how the line breaks the protocol.
    pub(super) fn handle(&mut self, rank: usize, line: &str) -> Result<Answer, String> {
        if line.starts_with("mcmd=spawn") {
            return Err("it asked for MPI_Comm_spawn, which `han run` does not offer".to_owned());
        }
        let message = Message::parse(line).map_err(|e| e.to_string())?;
        self.check_turn(rank, message.command())?;
        let answer = match message.command() {
            "init" => return self.init(rank, &message),
            "barrier_in" => return Ok(self.enter_barrier(rank)),
            "abort" => return Ok(Answer::Abort(message.number("exitcode").unwrap_or(1))),
            "put" => return self.put(&message),
            "get" => return self.get(&message),
            "finalize" => {
                self.ranks[rank].phase = Phase::Finalized;
                say("finalize_ack", &[("rc", &0)])
            }
            "get_maxes" => {
                let maxes: [(&str, &dyn Display); 4] = [
                    ("rc", &0),
                    ("kvsname_max", &KVSNAME_MAX),
                    ("keylen_max", &KEYLEN_MAX),
                    ("vallen_max", &VALLEN_MAX),
                ];
                say("maxes", &maxes)
            }
            "get_my_kvsname" => say("my_kvsname", &[("rc", &0), ("kvsname", &self.kvsname(rank))]),
            "get_universe_size" => say("universe_size", &[("rc", &0), ("size", &self.ranks.len())]),
            "get_appnum" => say("appnum", &[("rc", &0), ("appnum", &0)]),
            "publish_name" => say("publish_result", &[("rc", &-1), ("msg", &"not_offered")]),
            "unpublish_name" => say("unpublish_result", &[("rc", &-1), ("msg", &"not_offered")]),
            "lookup_name" => say("lookup_result", &[("rc", &-1), ("msg", &"not_offered")]),
            other => return Err(format!("it sent the unknown command {other:?}")),
        };
        answer.map(Answer::Line)
    }

    fn check_turn(&self, rank: usize, command: &str) -> Result<(), String> {
        match (self.ranks[rank].phase, command) {
            (Phase::Silent | Phase::Finalized, "init" | "abort") => Ok(()),
            (Phase::Silent, _) => Err(format!("it sent {command:?} before init")),
            (Phase::Finalized, _) => Err(format!("it sent {command:?} after finalize")),
            (Phase::InBarrier, _) => Err(format!("it sent {command:?} from within the barrier")),
            (Phase::Active, "init") => Err("it sent a second init".to_owned()),
            (Phase::Active, _) => Ok(()),
        }
    }

    fn kvsname(&self, rank: usize) -> String {
        format!("{}_{}", self.job, self.ranks[rank].inits)
    }

    fn init(&mut self, rank: usize, message: &Message<'_>) -> Result<Answer, String> {
        let version: i64 = message.number("pmi_version").map_err(|e| e.to_string())?;
        if version == 1 {
            self.ranks[rank].phase = Phase::Active;
            self.ranks[rank].inits += 1;
            self.forget_stores();
        }
        let rc = if version == 1 { 0 } else { -1 };
        let fields: [(&str, &dyn Display); 3] = [("pmi_version", &1), ("pmi_subversion", &1), ("rc", &rc)];
        say("response_to_init", &fields).map(Answer::Line)
    }

    /// Drops the stores that every rank has left behind.
    fn forget_stores(&mut self) {
        let oldest = self.ranks.iter().map(|rank| rank.inits).min().unwrap_or(0);
        if oldest == std::mem::replace(&mut self.oldest, oldest) {
            return;
        }
        let number = |name: &str| name.split(' ').next()?.strip_prefix(&*self.job)?.strip_prefix('_')?.parse().ok();
        self.store.retain(|name, _| number(name).is_none_or(|number: usize| number >= oldest));
        self.store_bytes = self.store.iter().map(|(name, value)| name.len() + value.len()).sum();
    }

    fn enter_barrier(&mut self, rank: usize) -> Answer {
        self.ranks[rank].phase = Phase::InBarrier;
        if self.ranks.iter().any(|rank| rank.phase != Phase::InBarrier) {
            return Answer::Later;
        }
        for rank in &mut self.ranks {
            rank.phase = Phase::Active;
        }
        Answer::ToAll("cmd=barrier_out rc=0\n".to_owned())
    }

    fn put(&mut self, message: &Message<'_>) -> Result<Answer, String> {
        let (name, value) = (stored_name(message)?, field(message, "value")?);
        let bytes = name.len() + value.len();
        let refusal = if self.store.contains_key(&name) {
            Some("duplicate_key")
        } else if field(message, "key")?.len() > KEYLEN_MAX {
            Some("key_too_long")
        } else if self.store_bytes + bytes > STORE_BYTES_MAX {
            Some("store_is_full")
        } else {
            None
        };
        if let Some(reason) = refusal {
            return say("put_result", &[("rc", &-1), ("msg", &reason)]).map(Answer::Line);
        }
        self.store_bytes += bytes;
        self.store.insert(name, value.to_owned());
        say("put_result", &[("rc", &0), ("msg", &"success")]).map(Answer::Line)
    }

    fn get(&self, message: &Message<'_>) -> Result<Answer, String> {
        let name = stored_name(message)?;
        let value = if field(message, "key")? == mapping::KEY { Some(&self.mapping) } else { self.store.get(&name) };
        let line = match value {
            Some(value) => say("get_result", &[("rc", &0), ("value", value)]),
            None => say("get_result", &[("rc", &-1), ("msg", &"key_not_found"), ("value", &"unknown")]),
        };
        line.map(Answer::Line)
    }
}

fn field<'a>(message: &Message<'a>, name: &str) -> Result<&'a str, String> {
    message.require(name).map_err(|e| e.to_string())
}

/// A key belongs to the store that the rank names; a space cannot occur in either.
fn stored_name(message: &Message<'_>) -> Result<String, String> {
    Ok(format!("{} {}", field(message, "kvsname")?, field(message, "key")?))
}

fn say(command: &str, fields: &[(&str, &dyn Display)]) -> Result<String, String> {
    wire::format(command, fields).map_err(|e| e.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(answer: Answer) -> String {
        match answer {
            Answer::Line(line) => line,
            other => panic!("not a line: {other:?}"),
        }
    }

    /// A server of `size` ranks that have all said init.
    fn ready(size: usize) -> Server {
        let mut server = Server::new("job", &[size]);
        for rank in 0..size {
            assert!(line(server.handle(rank, "cmd=init pmi_version=1 pmi_subversion=1").unwrap()).contains("rc=0"));
        }
        server
    }

    #[test]
    fn values_are_seen_by_others_and_kept_apart_by_store() {
        let mut server = ready(2);
        assert!(line(server.handle(0, "cmd=put kvsname=job_1 key=a value=x=1").unwrap()).contains("rc=0"));
        assert!(line(server.handle(1, "cmd=put kvsname=job_1 key=a value=2").unwrap()).contains("duplicate_key"));
        assert_eq!(line(server.handle(1, "cmd=get kvsname=job_1 key=a").unwrap()), "cmd=get_result rc=0 value=x=1\n");
        assert!(line(server.handle(1, "cmd=get kvsname=job_2 key=a").unwrap()).contains("rc=-1"));
    }

    #[test]
    fn the_barrier_opens_with_the_last_rank() {
        let mut server = ready(3);
        for _ in 0..2 {
            assert_eq!(server.handle(2, "cmd=barrier_in").unwrap(), Answer::Later);
            assert_eq!(server.handle(0, "cmd=barrier_in").unwrap(), Answer::Later);
            assert_eq!(server.phase(0), Phase::InBarrier);
            assert!(matches!(server.handle(1, "cmd=barrier_in").unwrap(), Answer::ToAll(_)));
            assert_eq!(server.phase(0), Phase::Active);
        }
    }

    #[test]
    fn the_mapping_tells_unequal_blocks() {
        let mut server = Server::new("job", &[3, 2]);
        server.handle(4, "cmd=init pmi_version=1 pmi_subversion=1").unwrap();
        let answer = line(server.handle(4, "cmd=get kvsname=job_1 key=PMI_process_mapping").unwrap());
        assert_eq!(answer, "cmd=get_result rc=0 value=(vector,(0,1,3),(1,1,2))\n");
    }

    #[test]
    fn a_script_may_run_two_programs() {
        let mut server = ready(1);
        assert!(line(server.handle(0, "cmd=get_my_kvsname").unwrap()).ends_with("kvsname=job_1\n"));
        server.handle(0, "cmd=finalize").unwrap();
        assert_eq!(server.phase(0), Phase::Finalized);
        server.handle(0, "cmd=init pmi_version=1 pmi_subversion=1").unwrap();
        assert!(line(server.handle(0, "cmd=get_my_kvsname").unwrap()).ends_with("kvsname=job_2\n"));
    }

    #[test]
    fn lines_out_of_turn_are_violations() {
        let mut server = Server::new("job", &[2]);
        assert!(server.handle(0, "cmd=get_maxes").unwrap_err().contains("before init"));
        let mut server = ready(2);
        assert!(server.handle(0, "cmd=init pmi_version=1").unwrap_err().contains("second init"));
        server.handle(0, "cmd=barrier_in").unwrap();
        assert!(server.handle(0, "cmd=barrier_in").unwrap_err().contains("within the barrier"));
        server.handle(1, "cmd=finalize").unwrap();
        assert!(server.handle(1, "cmd=get_maxes").unwrap_err().contains("after finalize"));
        assert!(ready(1).handle(0, "mcmd=spawn").unwrap_err().contains("MPI_Comm_spawn"));
        assert!(ready(1).handle(0, "cmd=frobnicate").unwrap_err().contains("frobnicate"));
        assert!(ready(1).handle(0, "GET / HTTP/1.1").unwrap_err().contains("GET /"));
    }

    #[test]
    fn the_store_has_a_limit() {
        let mut server = ready(1);
        let value = "v".repeat(900);
        let refused = (0..STORE_BYTES_MAX / 900 + 1).any(|i| {
            let put = format!("cmd=put kvsname=job_1 key=k{i} value={value}");
            line(server.handle(0, &put).unwrap()).contains("store_is_full")
        });
        assert!(refused);
    }

    #[test]
    fn stores_that_all_ranks_have_left_take_no_room() {
        let mut server = ready(2);
        let value = "v".repeat(900);
        // Twice as many as there is room for.
        for program in 1..=2 * STORE_BYTES_MAX / 900 {
            let put = format!("cmd=put kvsname=job_{program} key=a value={value}");
            assert!(line(server.handle(0, &put).unwrap()).contains("rc=0"), "{program}");
            server.handle(0, "cmd=finalize").unwrap();
            server.handle(0, "cmd=init pmi_version=1").unwrap();
            // The other one is still in this program.
            let get = format!("cmd=get kvsname=job_{program} key=a");
            assert!(line(server.handle(1, &get).unwrap()).contains("rc=0"));
            server.handle(1, "cmd=finalize").unwrap();
            server.handle(1, "cmd=init pmi_version=1").unwrap();
        }
        assert_eq!(server.store.len(), 0);
    }

    #[test]
    fn other_versions_are_declined() {
        let mut server = Server::new("job", &[1]);
        assert!(line(server.handle(0, "cmd=init pmi_version=2 pmi_subversion=0").unwrap()).contains("rc=-1"));
        assert_eq!(server.phase(0), Phase::Silent);
    }

    proptest! {
        #[test]
        fn any_lines_are_answered_or_refused(lines in prop::collection::vec((0_usize..2, "(cmd=)?(init|put|get|barrier_in|finalize|abort|get_maxes)?[ -~]{0,80}"), 0..40)) {
            let mut server = ready(2);
            for (rank, line) in lines {
                if let Ok(Answer::Line(answer) | Answer::ToAll(answer)) = server.handle(rank, &line) {
                    prop_assert!(answer.len() <= wire::MAX_LINE_BYTES && answer.ends_with('\n'));
                }
            }
        }
    }
}
