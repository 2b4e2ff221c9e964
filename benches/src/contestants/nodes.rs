//! The contestants over several nodes: han and the rivals on the nodes of a testbed, TCP between them.
//!
//! Rivals are told which interface to take, and to yield where ranks share cores. Their launchers do not bind ranks to
//! cores: they would put every node's first rank on the first core. The scheduler places them, or `taskset` does.
//! MPICH's shared-memory path, which spins, is left to the ranks that have a core each, as on one node. UCX does
//! without CMA: it takes two nodes that share a kernel for one.
//!
//! A launcher runs on the first node, as a user's does, and reaches the others through `benches/testbed-ssh`.

use std::path::Path;
use std::process::Command;

use super::{Contestant, Fits, Job, Library, Places, Rank, Settings, UCX, supervised};
use crate::network::Network;
use crate::testbed;

/// The name of every node's interface.
const INTERFACE: &str = "eth0";
/// Open MPI's own point-to-point layer.
const OB1: [(&str, &str); 2] = [("pml", "ob1"), ("btl", "self,sm,tcp")];
/// UCX without anything that a node shares with no other.
const UCX_TCP: [(&str, &str); 2] = [("UCX_TLS", "tcp,posix,self"), ("UCX_NET_DEVICES", INTERFACE)];
/// libfabric's TCP provider.
const OFI_TCP: [(&str, &str); 2] = [("FI_PROVIDER", "tcp"), ("FI_TCP_IFACE", INTERFACE)];

/// Everybody who takes part over nodes, han first.
#[must_use]
pub fn over_nodes() -> Vec<Contestant> {
    use Library::{IntelMpi, Mpich, OpenMpi};
    use Rank::{Best, Further, Installed};
    let any = |library, suffix: &str, rank, settings: &[Settings]| {
        Contestant::new(library, suffix, rank, Fits::Any, &settings.concat())
    };
    let few_and_many = |library, suffixes: [&str; 2], rank, settings: &[Settings], if_many: Settings| {
        let few = Contestant::new(library, suffixes[0], rank, Fits::Few, &settings.concat());
        let many = [&settings.concat(), if_many].concat();
        [few, Contestant::new(library, suffixes[1], rank, Fits::Many, &many)]
    };
    let yields: Settings = &[("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")];
    let waits: Settings = &[("I_MPI_WAIT_MODE", "1")];
    let mpich = |suffixes, rank, settings: &[Settings]| {
        let [few, many] = few_and_many(Mpich, suffixes, rank, settings, yields);
        [few, many.algorithms("mpir")]
    };
    let mut all = vec![
        Contestant::han("malloc"),
        any(OpenMpi, "", Installed, &[&OB1]),
        any(OpenMpi, "tuned", Best, &[&OB1, &[("coll", "^han")]]),
        any(OpenMpi, "ucx", Best, &[&UCX, &UCX_TCP]),
        any(OpenMpi, "adapt", Further, &[&OB1, &[("coll_adapt_priority", "100")]]),
    ];
    all.extend(mpich(["", "yield"], Installed, &[&OFI_TCP, &[("MPIR_CVAR_CH4_NETMOD", "ofi")]]));
    let ucx = [("MPIR_CVAR_CH4_NETMOD", "ucx"), ("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", INTERFACE)];
    all.extend(mpich(["ucx", "ucx-yield"], Best, &[&ucx]));
    all.extend(few_and_many(IntelMpi, ["", "wait"], Installed, &[&OFI_TCP], waits));
    let bound = |library, suffix: &str, settings: &[Settings]| {
        let contestant = Contestant::new(library, suffix, Best, Fits::Many, &settings.concat());
        Contestant { bound: true, ..contestant }
    };
    all.push(bound(OpenMpi, "ucx-bound", &[&UCX, &UCX_TCP]));
    all.push(bound(IntelMpi, "wait-bound", &[&OFI_TCP, waits]));
    all.sort_by_key(|contestant| contestant.rank);
    all
}

impl Contestant {
    /// The command that runs `job` on the nodes of `network`; the testbed is the one that its environment names.
    pub(super) fn start_over_nodes(
        &self,
        places: &Places,
        job: &Job,
        network: &Network,
        cores: usize,
        limit_s: u64,
    ) -> Command {
        let on_node = format!("{} exec", quoted(&places.testbed));
        if self.library == Library::Han {
            let mut command = Command::new(&places.han);
            command.args(["run", "-n", &job.ranks.to_string(), "--nodes", &network.nodes.to_string()]);
            command.args(["--node-exec", &format!("{on_node} {{node}}"), "--timeout", &limit_s.to_string(), "--"]);
            command.arg(&job.program).args(&job.arguments);
            return command;
        }
        let mut launcher = self.launcher_over_nodes(places, job.ranks, network, cores);
        if self.bound {
            let core = format!("$((${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} % {cores}))");
            launcher.args(["sh", "-c", &format!("exec taskset -c {core} \"$0\" \"$@\"")]);
        }
        launcher.arg(&job.program).args(&job.arguments);
        let mut on_first = Command::new(&places.testbed);
        on_first.args(["exec", "0"]).arg(launcher.get_program()).args(launcher.get_args());
        on_first.envs(launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
        supervised(places, &on_first, limit_s)
    }

    /// The rival's own launcher, which starts a block of ranks on each node.
    fn launcher_over_nodes(&self, places: &Places, ranks: usize, network: &Network, cores: usize) -> Command {
        let (home, ssh) = (places.rivals.join(self.library.word()), testbed::ssh(&places.testbed));
        let per_node = (ranks / network.nodes).to_string();
        let hosts = |suffix: &str| {
            let host = |node| format!("node{node}{suffix}");
            (0..network.nodes).map(host).collect::<Vec<_>>().join(",")
        };
        if self.library == Library::OpenMpi {
            let mut command = Command::new(home.join("bin/mpiexec"));
            command.args(["--allow-run-as-root", "--bind-to", "none", "-n", &ranks.to_string()]);
            command.args(["--host", &hosts(&format!(":{per_node}"))]);
            command.args(["--map-by", &format!("ppr:{per_node}:node:oversubscribe")]);
            command.args(["--prtemca", "plm_ssh_no_tree_spawn", "1", "--prtemca", "prte_if_include", INTERFACE]);
            command.args(["--prtemca", "plm_ssh_agent"]).arg(ssh);
            command.args(["--mca", "btl_tcp_if_include", INTERFACE]);
            if ranks > cores {
                command.args(["--mca", "mpi_yield_when_idle", "1"]);
            }
            self.set(&mut command, &home);
            return command;
        }
        let is_intel = self.library == Library::IntelMpi;
        let mut command = Command::new(home.join(if is_intel { "bin/mpiexec.hydra" } else { "bin/mpiexec" }));
        let (kind, program) =
            if is_intel { ("-bootstrap", "-bootstrap-exec") } else { ("-launcher", "-launcher-exec") };
        command.args([kind, "ssh", program]).arg(ssh);
        command.args(["-hosts", &hosts(""), "-ppn", &per_node, "-n", &ranks.to_string(), "-iface", INTERFACE]);
        if is_intel {
            let libraries = home.join("lib");
            command.env("I_MPI_ROOT", &home).env("I_MPI_FABRICS", "shm:ofi").env("I_MPI_PIN", "0");
            command.env("LD_LIBRARY_PATH", &libraries).env("FI_PROVIDER_PATH", &libraries);
        }
        self.set(&mut command, &home);
        command
    }
}

/// A path as one word of a command prefix.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Style, Task};
    use crate::network::tests::network;
    use std::collections::BTreeSet;

    fn line_of(name: &str, ranks: usize, nodes: usize) -> String {
        let all = over_nodes();
        let contestant = all.iter().find(|contestant| contestant.name == name).expect("in the list");
        let network = Some(network(nodes, "1gbit"));
        let task = Task { ranks, network, ..Task::of("bcast", &[8, 64], Style::Osu) };
        super::super::tests::line_of(contestant, &task)
    }

    #[test]
    fn names_are_unique_and_every_library_has_one_for_any_number() {
        let all = over_nodes();
        let names: BTreeSet<&str> = all.iter().map(|contestant| contestant.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for ranks in [2, 4] {
            let installed = all.iter().filter(|c| c.rank == Rank::Installed && c.takes_part(ranks, 2));
            assert_eq!(installed.map(|c| c.library).collect::<Vec<_>>(), Library::COLUMNS);
            let best = all.iter().filter(|c| c.rank <= Rank::Best && c.takes_part(ranks, 2)).count();
            // han, three of Open MPI, two of MPICH, one of Intel MPI; where cores are shared two also bound to them
            assert_eq!(best, if ranks > 2 { 9 } else { 7 });
        }
    }

    #[test]
    fn han_starts_behind_the_testbed() {
        let line = line_of("han", 4, 2);
        assert!(
            line.starts_with("run -n 4 --nodes 2 --node-exec '/bench/testbed' exec {node} --timeout 9 -- /cb/han ")
        );
    }

    #[test]
    fn rivals_start_on_the_first_node_and_reach_the_others() {
        let line = line_of("openmpi-ucx", 2, 2);
        assert!(line.contains("/bench/testbed exec 0 /peers/openmpi/bin/mpiexec"), "{line}");
        assert!(line.contains("--host node0:1,node1:1 --map-by ppr:1:node:oversubscribe"), "{line}");
        assert!(
            line.contains("plm_ssh_agent /bench/testbed-ssh") && line.contains("-x UCX_NET_DEVICES=eth0"),
            "{line}"
        );
        assert!(!line.contains("mpi_yield_when_idle"), "{line}");
        assert!(line_of("openmpi", 4, 2).contains("--mca mpi_yield_when_idle 1"));

        let line = line_of("mpich-yield", 8, 4);
        assert!(
            line.contains("-launcher-exec /bench/testbed-ssh -hosts node0,node1,node2,node3 -ppn 2 -n 8"),
            "{line}"
        );
        assert!(line.contains("MPIR_CVAR_POLLS_BEFORE_YIELD=1") && line.contains("FI_TCP_IFACE=eth0"), "{line}");

        let line = line_of("intelmpi", 2, 2);
        assert!(line.contains("/peers/intelmpi/bin/mpiexec.hydra -bootstrap ssh -bootstrap-exec"), "{line}");
        assert!(line.contains("I_MPI_FABRICS=shm:ofi") && line.contains("I_MPI_PIN=0"), "{line}");
        let line = line_of("intelmpi-wait-bound", 4, 4);
        assert!(line.contains("sh -c exec taskset -c $((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} % 2)) \"$0\""), "{line}");
    }
}
