//! How a process learns its rank and meets the others: a launcher that speaks PMI-1 or PMIx, an address where all ranks meet, a caller's
//! own allgather, or nobody at all.
//!
//! Every way ends in an [`Exchange`], the only thing that the rest of start-up knows. The environment
//! is read here, once, and nowhere else.

mod error;
mod oob;
mod patience;
pub mod pmi;
mod pmix;
mod rendezvous;

use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs};

use shm_core::exchange::{Alone, Exchange};
use shm_core::sys::process;

pub use error::{Error, Result};
pub use oob::OutOfBand;
use patience::Patience;
pub use pmix_client::Error as PmixError;

use crate::config::Config;

/// Joins the job that this process was started in: the ranks that meet at `HAN_RENDEZVOUS`, PMI-1 over `PMI_FD` or
/// `PMI_PORT`, PMIx, which comes before a `PMI_FD` that is left over, else a world of this one rank. Where the launcher does not tell of ranks that never come, a long wait
/// is told of, and given up, by `config`'s `HAN_WATCHDOG` and `timeout_s`.
///
/// # Errors
/// [`Error::Environment`] when variables contradict each other; otherwise whatever meeting the others comes upon.
pub fn connect(config: &Config) -> Result<Box<dyn Exchange>> {
    let patience = Patience { speak_s: config.settings.watchdog_s, limit_s: config.settings.timeout_s };
    // A connection could get their numbers.
    process::occupy_standard_streams();
    connect_with(variable, patience)
}

/// True if this process was started as a rank of a job, in any of the ways that [`connect`] knows.
#[must_use]
pub fn is_rank() -> bool {
    launcher(variable).is_some()
}

/// The variable by which this process was started as a rank of a job.
#[must_use]
pub fn told_by() -> Option<&'static str> {
    launcher(variable)
}

/// True if the launcher's variables say that this process, or the shell that has started it, is the only rank of its job, as
/// under `srun --pty bash`. Some launchers do not say it.
#[must_use]
pub fn is_only_rank() -> bool {
    is_only_rank_under(variable)
}

fn variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn launcher(variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let is_set = |name| variable(name).is_some_and(|value| name != rendezvous::ADDRESS || !value.is_empty());
    let first = [rendezvous::ADDRESS, "PMI_FD", "PMI_PORT", "PMIX_NAMESPACE"].into_iter().find(|&name| is_set(name))?;
    // A launcher of PMIx that a rank of another job has started, as the shell of `srun --pty bash` is one, hands that job's
    // PMI_FD on.
    let is_left_over =
        || variable("PMI_SIZE").as_deref() == Some("1") || !variable("PMI_FD").is_some_and(|fd| is_socket(&fd));
    Some(if first == "PMI_FD" && is_set("PMIX_NAMESPACE") && is_left_over() { "PMIX_NAMESPACE" } else { first })
}

/// Whether the descriptor of this number is a connection.
fn is_socket(fd: &str) -> bool {
    fs::metadata(format!("/proc/self/fd/{fd}")).is_ok_and(|file| file.file_type().is_socket())
}

fn is_only_rank_under(variable: impl Fn(&str) -> Option<String>) -> bool {
    let size = match launcher(&variable) {
        Some(rendezvous::ADDRESS) => variable(rendezvous::SIZE),
        Some("PMI_FD") => variable("PMI_SIZE"),
        // Slurm's own; under other launchers the number would be that of the step that they were started in.
        Some("PMIX_NAMESPACE") if variable("PMIX_NAMESPACE").is_some_and(|name| name.starts_with("slurm.")) => {
            variable("SLURM_STEP_NUM_TASKS")
        }
        _ => None,
    };
    size.as_deref() == Some("1")
}

/// This process has joined a launcher's job. A static, because the launcher's connection is the process's, and a second
/// greeting would end the job.
static HAS_JOINED: AtomicBool = AtomicBool::new(false);

/// Joins a launcher's job by `join`, unless this process, or the rank that has forked it, has done so before.
fn once<E: Exchange + 'static>(join: impl FnOnce() -> Result<E>) -> Result<Box<dyn Exchange>> {
    // Nothing else is handed over by it: of two threads one is refused.
    if HAS_JOINED.swap(true, Ordering::Relaxed) {
        let why = "this process has joined the launcher's job before, which it can do once, also after it has left: keep its \
                   context as long as it is needed";
        return Err(Error::Environment(why.into()));
    }
    let joined = join();
    HAS_JOINED.store(joined.is_ok(), Ordering::Relaxed);
    Ok(Box::new(joined?))
}

fn connect_with(variable: impl Fn(&str) -> Option<String>, patience: Patience) -> Result<Box<dyn Exchange>> {
    match launcher(&variable) {
        Some(rendezvous::ADDRESS) => {
            let set = |name: &str| variable(name).filter(|value| !value.is_empty());
            let address = set(rendezvous::ADDRESS).unwrap_or_default();
            rendezvous::meet(rendezvous::Settings::read(&address, set)?)
        }
        Some("PMI_FD") => {
            let number = |name: &str| parse(name, variable(name).as_deref());
            let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
            let fd = parse("PMI_FD", variable("PMI_FD").as_deref())?;
            once(|| {
                let client = pmi::Client::over_inherited(fd, rank, size)?.with(patience);
                Ok(if knows_nodes(&variable) { client } else { client.without_nodes() })
            })
        }
        Some("PMI_PORT") => {
            let id = parse("PMI_ID", variable("PMI_ID").as_deref())?;
            let address = variable("PMI_PORT").unwrap_or_default();
            once(|| Ok(pmi::Client::over_tcp(&address, id)?.with(patience)))
        }
        Some(_) => once(|| pmix::Pmix::connect(patience)),
        None => Ok(Box::new(alone(variable)?)),
    }
}

/// Whether what the launcher of `PMI_FD` says of nodes is so. Slurm (`PMI_JOBID`) gives each task of a hostfile a node of its
/// own, and knows a part of those of a heterogeneous job.
fn knows_nodes(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_arbitrary = variable("SLURM_DISTRIBUTION").is_some_and(|how| how.starts_with("arbitrary"));
    let is_of_parts = variable("SLURM_HET_SIZE").is_some();
    variable("PMI_JOBID").is_none() || !(is_arbitrary || is_of_parts)
}

/// A world of this one rank, unless something says that it is one of several: silently becoming N worlds of one rank would be
/// the worst answer.
fn alone(variable: impl Fn(&str) -> Option<String>) -> Result<Alone> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let several = |name: &'static str| set(name).filter(|size| size != "1").map(|size| (name, size));
    if let Some((_, tasks)) = several("SLURM_STEP_NUM_TASKS") {
        let why = format!(
            "srun has started {tasks} tasks that it tells nothing of each other: use srun --mpi=pmi2 (srun --mpi=list shows \
             what there is); tasks that are to be alone: env -u SLURM_STEP_NUM_TASKS"
        );
        return Err(Error::Environment(why));
    }
    let (address, size, rank) = (rendezvous::ADDRESS, rendezvous::SIZE, rendezvous::RANK);
    if let Some((name, ranks)) = ["PMI_SIZE", "PALS_NRANKS", "OMPI_COMM_WORLD_SIZE"].into_iter().find_map(several) {
        let why = format!(
            "{name}={ranks} is set, but no way by which ranks learn of each other (PMI_FD, PMI_PORT, PMIX_NAMESPACE): ranks of \
             a launcher that speaks something else can meet at {address}; a process that is to be alone: env -u {name}"
        );
        return Err(Error::Environment(why));
    }
    let told = [size, rank].into_iter().find_map(|name| set(name).map(|value| (name, value)));
    if let Some((name, value)) = told.filter(|told| *told != (size, "1".to_owned())) {
        // The same answer to ranks that would meet, had they been told where.
        let why = format!(
            "{name}={value} is set beside no {address}: ranks meet at an address and port of rank 0's machine, such as \
             {address}=node1:29500; a process that is to be alone: env -u {size} -u {rank}"
        );
        return Err(Error::Environment(why));
    }
    Ok(Alone)
}

fn parse<T: std::str::FromStr>(name: &str, value: Option<&str>) -> Result<T> {
    let value = value.ok_or_else(|| Error::Environment(format!("{name} is not set beside PMI_FD or PMI_PORT")))?;
    value.parse().map_err(|_| Error::Environment(format!("{name}={value:?} is not a number in range")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn connect_under(variables: &[(&str, &str)]) -> Result<Box<dyn Exchange>> {
        let patience = Patience { speak_s: 0.0, limit_s: 0.0 };
        connect_with(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()), patience)
    }

    fn refusal(variables: &[(&str, &str)]) -> String {
        connect_under(variables).err().unwrap().to_string()
    }

    #[test]
    fn without_a_launcher_the_world_is_this_process() {
        let mut alone = connect_under(&[]).unwrap();
        assert_eq!((alone.rank(), alone.size()), (0, 1));
        assert_eq!(alone.allgather(b"card").unwrap(), [b"card"]);
    }

    #[test]
    fn contradictory_variables_are_named() {
        assert!(refusal(&[("PMI_FD", "9")]).contains("PMI_RANK is not set"));
        assert!(refusal(&[("PMI_FD", "9"), ("PMI_RANK", "0")]).contains("PMI_SIZE is not set"));
        assert!(refusal(&[("PMI_FD", "9"), ("PMI_RANK", "-1"), ("PMI_SIZE", "2")]).contains("PMI_RANK=\"-1\""));
        assert!(refusal(&[("PMI_FD", "x"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")]).contains("PMI_FD=\"x\""));
        assert!(refusal(&[("PMI_FD", "9"), ("PMI_RANK", "2"), ("PMI_SIZE", "2")]).contains("rank 2 of 2"));
        assert!(refusal(&[("SLURM_STEP_NUM_TASKS", "4")]).contains("srun has started 4 tasks"));
        assert!(connect_under(&[("SLURM_STEP_NUM_TASKS", "1")]).is_ok());
        for name in ["PMI_SIZE", "PALS_NRANKS", "OMPI_COMM_WORLD_SIZE"] {
            assert!(refusal(&[(name, "4")]).contains(&format!("{name}=4 is set, but no way")));
            assert!(connect_under(&[(name, "1")]).is_ok());
        }
        assert!(
            refusal(&[("HAN_RANK", "0"), ("HAN_SIZE", "2")]).contains("HAN_SIZE=2 is set beside no HAN_RENDEZVOUS")
        );
        assert!(refusal(&[("HAN_RANK", "0")]).contains("HAN_RANK=0 is set beside no HAN_RENDEZVOUS"));
        assert!(connect_under(&[("HAN_SIZE", "1")]).is_ok());
        assert!(connect_under(&[("HAN_SIZE", "1"), ("HAN_RANK", "0")]).is_ok());
        assert!(refusal(&[("PMI_PORT", "localhost:1")]).contains("PMI_ID is not set"));
    }

    #[test]
    fn a_connection_that_is_left_over_does_not_hide_pmix() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pipe, _writer) = std::io::pipe().unwrap();
        let [socket, pipe] = [near.as_raw_fd(), pipe.as_raw_fd()].map(|fd| fd.to_string());
        let told_by = |fd: &str, size: &str, has_pmix: bool| {
            launcher(|name| match name {
                "PMI_FD" => Some(fd.to_owned()),
                "PMI_SIZE" => Some(size.to_owned()),
                "PMIX_NAMESPACE" => has_pmix.then(|| "prterun-node1-7@1".to_owned()),
                _ => None,
            })
        };
        assert_eq!(told_by(&socket, "2", true), Some("PMI_FD"));
        for (fd, size) in [(&*socket, "1"), (&*pipe, "2"), ("999999", "2"), ("x", "2")] {
            assert_eq!(told_by(fd, size, true), Some("PMIX_NAMESPACE"), "{fd} {size}");
            assert_eq!(told_by(fd, size, false), Some("PMI_FD"));
        }
    }

    #[test]
    fn the_only_rank_of_a_job_is_known_by_its_own_launchers_variables() {
        let is_only = |variables: &[(&str, &str)]| {
            is_only_rank_under(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
        };
        let (slurm, of_slurm) = (("SLURM_STEP_NUM_TASKS", "1"), ("PMIX_NAMESPACE", "slurm.pmix.7.0"));
        assert!(is_only(&[("PMI_FD", "9"), ("PMI_SIZE", "1")]));
        assert!(is_only(&[("HAN_RENDEZVOUS", "node1:29500"), ("HAN_SIZE", "1")]));
        assert!(is_only(&[of_slurm, slurm]));
        assert!(!is_only(&[]) && !is_only(&[slurm]));
        assert!(!is_only(&[("PMI_FD", "9"), ("PMI_SIZE", "2"), slurm]));
        // Hydra's and Open MPI's ranks, in a step of one task.
        assert!(!is_only(&[("PMI_PORT", "node1:1"), ("PMI_ID", "0"), slurm]));
        assert!(!is_only(&[("PMIX_NAMESPACE", "prterun-node1-7@1"), slurm]));
        assert!(!is_only(&[of_slurm, ("SLURM_STEP_NUM_TASKS", "4")]));
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_named() {
        let text = refusal(&[("PMI_FD", "999999"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")]);
        assert!(text.contains("999999"), "{text}");
    }
}
