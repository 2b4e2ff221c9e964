//! Starting ranks, and connecting them.
#![allow(unsafe_code)] // vouches for the exchange

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::exchange::{Exchange, ExchangeError};

/// After this a test has hung.
const PATIENCE: Duration = Duration::from_secs(300);
const ROLE: &str = "HAN_TEST_ROLE";
const PLACE: &str = "HAN_TEST_PLACE";
const SET: &str = "HAN_TEST_SET";

/// Runs `size` ranks that play `role` with the settings `set`, and expects all to end well.
pub(super) fn ranks(size: usize, role: &str, set: &str) {
    let directory = tempfile::tempdir().unwrap();
    // Ranks may give up their rights.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let start = |rank: usize| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["copy::processes::harness::play_a_role", "--exact", "--ignored", "--nocapture", "--quiet"]);
        command.env(ROLE, role).env(SET, set).env(PLACE, format!("{rank} {size} {}", directory.path().display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut children: Vec<Child> = (0..size).map(start).collect();
    let give_up = Instant::now() + PATIENCE;
    let done = |children: &mut Vec<Child>| {
        let states: Vec<_> = children.iter_mut().map(|child| child.try_wait().unwrap()).collect();
        states.iter().all(Option::is_some) || states.iter().flatten().any(|status| !status.success())
    };
    while !done(&mut children) && Instant::now() < give_up {
        thread::sleep(Duration::from_millis(1));
    }
    let hung = Instant::now() >= give_up;
    let mut failed = hung;
    let mut report = String::new();
    for (rank, mut child) in children.into_iter().enumerate() {
        if child.try_wait().unwrap().is_none() {
            // One that has failed leaves the others waiting.
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        failed |= !output.status.success();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        report += &format!("rank {rank}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
    }
    assert!(!failed, "{role} with {set:?} failed (hung: {hung}):\n{report}");
}

/// An exchange through a directory: each rank writes a file a round, and reads all.
pub(super) struct Files {
    directory: PathBuf,
    rank: usize,
    size: usize,
    round: usize,
}

// SAFETY: a file is named after its rank and its round, and appears whole.
unsafe impl Exchange for Files {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.size
    }
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.tell(bytes)?;
        let all = (0..self.size).map(|rank| self.hear(rank)).collect();
        self.round += 1;
        all
    }
}

impl Files {
    fn name(&self, rank: usize) -> PathBuf {
        self.directory.join(format!("{}-{rank}", self.round))
    }

    /// This rank's words of this round.
    pub(super) fn tell(&self, bytes: &[u8]) -> Result<(), ExchangeError> {
        let draft = self.directory.join(format!("draft-{}", self.rank));
        fs::write(&draft, bytes)?;
        fs::rename(&draft, self.name(self.rank))?;
        Ok(())
    }

    /// Those of `rank`, once they are there.
    pub(super) fn hear(&self, rank: usize) -> Result<Vec<u8>, ExchangeError> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match fs::read(self.name(rank)) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if Instant::now() > give_up => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    /// Exchanges that are over.
    pub(super) fn round(&self) -> usize {
        self.round
    }
}

#[test]
#[ignore = "a rank of other tests: they start it"]
fn play_a_role() {
    let Ok(place) = env::var(PLACE) else { return };
    let mut words = place.splitn(3, ' ');
    let (rank, size) = (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap());
    let exchange = Files { directory: words.next().unwrap().into(), rank, size, round: 0 };
    super::roles::play(&env::var(ROLE).unwrap(), &env::var(SET).unwrap(), exchange);
}
