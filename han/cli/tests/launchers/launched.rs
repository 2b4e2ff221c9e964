//! The launchers of MPI implementations and of Slurm.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::Job;
use crate::programs::{
    REPRODUCIBLE, endless_training, expect_greetings, expect_training, hello, kill_one_rank, training,
};
use crate::testbed::Testbed;

const BENCHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches");

/// Debian's Open MPI 4.
const DEBIAN: &str = "mpirun.openmpi";

/// A launcher and its options, but for the number of ranks.
struct Launcher(Vec<String>);

impl Launcher {
    fn of(line: &str) -> Self {
        Self(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Open MPI's, of either generation, on this machine alone.
    fn open_mpi(program: &str) -> Self {
        let oversubscribe = if program == DEBIAN { "--oversubscribe" } else { "--map-by :OVERSUBSCRIBE" };
        Self::of(&format!("{program} --allow-run-as-root --bind-to none {oversubscribe} -n"))
    }

    /// Open MPI's on two nodes, two ranks each; it hands on no variables unless it is told to.
    fn open_mpi_over_nodes(program: &str, testbed: &Testbed) -> Self {
        let ssh = format!("{BENCHES}/testbed-ssh");
        let of_generation = if program == DEBIAN {
            format!("--oversubscribe --mca plm_rsh_agent {ssh} --mca oob_tcp_if_include eth0")
        } else {
            // A wheel does not lie where it was built for.
            let home = program.rsplit_once("/bin/").map_or("", |(home, _)| home);
            let ssh = format!("--prtemca plm_ssh_agent {ssh} --prtemca prte_if_include eth0");
            format!("--prefix {home} --map-by :OVERSUBSCRIBE {ssh}")
        };
        let common = "--allow-run-as-root --bind-to none --host node0:2,node1:2";
        let exported = format!("-x {} -x HAN_TEST_MARK -x HAN_LOG", REPRODUCIBLE.0);
        Self::on_first_node(testbed, &format!("{program} {common} {of_generation} {exported} -n"))
    }

    fn hydra_over_nodes(testbed: &Testbed) -> Self {
        let ssh = format!("-launcher ssh -launcher-exec {BENCHES}/testbed-ssh");
        Self::on_first_node(testbed, &format!("mpiexec.hydra {ssh} -hosts node0,node1 -ppn 2 -iface eth0 -n"))
    }

    fn slurm(nodes: usize, mpi: &str) -> Self {
        Self::of(&format!("{BENCHES}/testbed-slurm {nodes} srun --quiet -N {nodes} --mpi={mpi} -n"))
    }

    fn on_first_node(testbed: &Testbed, line: &str) -> Self {
        let prefix = testbed.prefix().replace("{node}", "0");
        Self::of(&format!("{prefix} env HAN_TESTBED={} {line}", testbed.name()))
    }

    /// A job of `ranks` ranks of a program.
    fn job(&self, ranks: usize, program: &[String]) -> Job {
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]).arg(ranks.to_string()).args(program);
        Job::of(command).env(REPRODUCIBLE.0, REPRODUCIBLE.1).env("HAN_LOG", "info")
    }

    /// Runs everything; `nodes` is what `describe()` says of them.
    fn check(&self, ranks: usize, nodes: Option<&str>) {
        let done = self.job(ranks, &[hello()]).finish();
        expect_greetings(&done, ranks);
        if let Some(nodes) = nodes {
            assert!(done.stderr.contains(nodes), "{nodes:?} is missing in {done:#?}");
        }
        expect_training(&self.job(ranks, &training()).finish(), ranks);
        kill_one_rank(self.job(3, &endless_training()).start());
    }
}

/// A launcher of Open MPI 5, which is installed where HAN_TEST_PEERS says.
fn peer(program: &str) -> String {
    let peers = std::env::var_os("HAN_TEST_PEERS").expect("HAN_TEST_PEERS: make check-launchers sets it");
    PathBuf::from(peers).join("openmpi/bin").join(program).to_str().unwrap().to_owned()
}

/// One of Open MPI's launchers at a time: two that make their folder for temporary files at once end with "File exists".
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn debians_mpirun() {
    let _alone = alone();
    let launcher = Launcher::open_mpi(DEBIAN);
    for ranks in [1, 5] {
        expect_greetings(&launcher.job(ranks, &[hello()]).finish(), ranks);
    }
    launcher.check(3, None);
}

#[test]
fn debians_mpirun_over_nodes() {
    let _alone = alone();
    let Some(testbed) = Testbed::up(2) else { return };
    Launcher::open_mpi_over_nodes(DEBIAN, &testbed).check(4, Some("nodes: 2 with 4 ranks"));
}

/// Says that this binary is a rank that plays the role below.
const ROLE: &str = "HAN_TEST_ROLE";

#[test]
#[ignore = "a rank of other tests: they start it under a launcher"]
fn rank_1_aborts() -> han::Result<()> {
    if std::env::var_os(ROLE).is_none() {
        return Ok(());
    }
    let context = han::Context::init()?;
    if context.world().rank() == 1 {
        context.abort(9, "as agreed");
    }
    loop {
        context.world().barrier()?;
    }
}

#[test]
fn an_abort_ends_a_job_of_mpirun() {
    let own = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let words = ["launched::rank_1_aborts", "--exact", "--ignored", "--nocapture"].map(str::to_owned);
    let words = [&[own][..], &words].concat();
    let done = Launcher::open_mpi(DEBIAN).job(3, &words).env(ROLE, "abort").finish();
    assert_eq!(done.code, 9, "{done:#?}");
}

#[test]
fn a_rank_that_ends_without_a_word_is_not_waited_for_in_silence() {
    let _alone = alone();
    let script = format!("[ $OMPI_COMM_WORLD_RANK = 1 ] || exec {}", hello());
    let words = ["sh", "-c", &script].map(str::to_owned);
    let job = Launcher::open_mpi(DEBIAN).job(3, &words);
    let done = job.env("HAN_WATCHDOG", "0.5").env("HAN_SET", "timeout_s=20").finish();
    assert_ne!(done.code, 0, "{done:#?}");
    // Open MPI 5's launcher ends the job at once, and names that rank.
    if done.stderr.contains("prterun has exited due to process rank 1 ") {
        return;
    }
    let waited = "at the start for the other ranks of 3; under PMIx one that has ended without a word";
    // That the wait is given up may come too late: mpirun ends the job with the first rank that fails, and drops the rest.
    for said in ["han: watchdog: rank 0 has waited ", waited] {
        assert!(done.stderr.contains(said), "{said:?} is missing in {done:#?}");
    }
}

#[test]
fn a_launcher_that_has_gone_is_missed() {
    let mut command = Command::new(hello());
    command.env("PMIX_NAMESPACE", "nowhere").env("PMIX_RANK", "0");
    let why =
        ["hello: ", "PMIx: PMIx_Init", "a process that is to be alone: env -u PMIX_NAMESPACE -u OMPI_COMM_WORLD_SIZE"];
    Job::of(command).finish().expect(1, &why);
}

/// What a shell of `srun --pty bash` hands to the ranks of a job that it starts.
#[test]
fn a_connection_that_is_left_over_does_not_divide_a_job_of_mpirun() {
    let _alone = alone();
    let left_over = ["env", "PMI_FD=9", "PMI_RANK=0", "PMI_SIZE=1", &hello()].map(str::to_owned);
    expect_greetings(&Launcher::open_mpi(DEBIAN).job(2, &left_over).finish(), 2);
}

#[test]
fn ranks_of_a_launcher_that_is_not_understood_are_no_worlds_of_one() {
    let mut command = Command::new(hello());
    command.env("PALS_NRANKS", "4");
    Job::of(command).finish().expect(1, &["hello: ", "PALS_NRANKS=4 is set, but no way", "env -u PALS_NRANKS"]);
}

/// Slurm's mapping of such a job is wrong: these ranks share a node, whatever it says.
#[test]
fn ranks_that_slurm_has_placed_by_a_hostfile_find_their_nodes_themselves() {
    let nodes = |variables: &[&str]| {
        let hello = hello();
        let words = [&["-n", "2", "--nodes", "2", "--", "env"], variables, &[&hello]].concat();
        let done = Job::new(&words).env("HAN_LOG", "info").finish();
        expect_greetings(&done, 2);
        if done.stderr.contains("nodes: 2 with 2 ranks") { 2 } else { 1 }
    };
    assert_eq!(nodes(&["SLURM_DISTRIBUTION=arbitrary"]), 2);
    assert_eq!(nodes(&["PMI_JOBID=7.0", "SLURM_DISTRIBUTION=block"]), 2);
    assert_eq!(nodes(&["PMI_JOBID=7.0", "SLURM_DISTRIBUTION=arbitrary"]), 1);
    assert_eq!(nodes(&["PMI_JOBID=7.0", "SLURM_HET_SIZE=2"]), 1);
}

#[test]
fn libpmix_that_is_there_changes_nothing_without_a_launcher() {
    expect_greetings(&Job::of(Command::new(hello())).finish(), 1);
}

#[test]
#[ignore = "make check-launchers runs it: needs Open MPI 5"]
fn open_mpi_5() {
    for program in ["mpirun", "prterun"] {
        Launcher::open_mpi(&peer(program)).check(3, None);
        let Some(testbed) = Testbed::up(2) else { return };
        Launcher::open_mpi_over_nodes(&peer(program), &testbed).check(4, Some("nodes: 2 with 4 ranks"));
    }
}

#[test]
#[ignore = "make check-launchers runs it: jobs of one node under Hydra are among the tests of the launcher"]
fn hydra_over_nodes() {
    let Some(testbed) = Testbed::up(2) else { return };
    Launcher::hydra_over_nodes(&testbed).check(4, Some("nodes: 2 with 4 ranks"));
}

#[test]
#[ignore = "make check-launchers runs it: needs Slurm"]
fn slurm() {
    for mpi in ["pmi2", "pmix"] {
        Launcher::slurm(1, mpi).check(3, None);
        Launcher::slurm(2, mpi).check(4, Some("nodes: 2 with 4 ranks"));
    }
    // The answer with the mapping has a block for each of these.
    expect_greetings(&Launcher::slurm(1, "pmi2 --overcommit -m cyclic").job(130, &[hello()]).finish(), 130);
    let by_hand = Launcher::slurm(2, "pmi2 -m arbitrary -w node0,node1,node0,node1").job(4, &[hello()]).finish();
    expect_greetings(&by_hand, 4);
    assert!(!by_hand.stderr.contains("nodes: "), "one kernel plays them: {by_hand:#?}");
}
