//! The contestants on one machine: han in each kind of memory, and the rivals as installed and with other settings.
//!
//! "As installed" is what a user gets who starts the program with nothing but the number of ranks,
//! one rank a core where there are enough; where there are not, with yielding switched on as each
//! manual advises. MPICH as installed is left out there: its shared-memory path spins and takes
//! milliseconds to a second an operation. The other settings come from the rivals' manuals and from
//! `ompi_info`, `mpichversion` and `impi_info`.

use super::{Contestant, Fits, Library, Rank, Settings, UCX};

/// Open MPI's old shared-memory component, before all others.
const SM: (&str, &str) = ("coll_sm_priority", "100");
/// Intel MPI's families of algorithms: collective, variable, how many there are.
const INTEL_FAMILIES: [(&str, &str, u32); 3] = [
    ("bcast", "I_MPI_ADJUST_BCAST", 15),
    ("reduce", "I_MPI_ADJUST_REDUCE", 15),
    ("allreduce", "I_MPI_ADJUST_ALLREDUCE", 25),
];

/// Everybody on one machine, han with buffers in each of `allocs` first.
#[must_use]
pub fn all(allocs: &[String]) -> Vec<Contestant> {
    let mut all: Vec<Contestant> = allocs.iter().map(|alloc| Contestant::han(alloc)).collect();
    all.extend(open_mpi());
    all.extend(mpich());
    all.extend(intel_mpi());
    all.extend(debian());
    all.sort_by_key(|contestant| contestant.rank);
    all
}

fn open_mpi() -> Vec<Contestant> {
    use Fits::{Any, Few};
    use Rank::{Best, Further, Installed};
    let open_mpi =
        |suffix, rank, fits, settings: Settings| Contestant::new(Library::OpenMpi, suffix, rank, fits, settings);
    let sm = |suffix, rank, fits, fragment, segments| {
        open_mpi(
            suffix,
            rank,
            fits,
            &[SM, ("coll_sm_fragment_size", fragment), ("coll_sm_comm_num_segments", segments)],
        )
    };
    let ucx = |suffix, rank, settings: Settings| open_mpi(suffix, rank, Few, &[&UCX, settings].concat());
    let (posix, no_rendezvous) = (("UCX_TLS", "posix,self"), ("UCX_RNDV_THRESH", "inf"));
    vec![
        open_mpi("", Installed, Any, &[]),
        open_mpi("tuned", Best, Any, &[("coll", "^han")]),
        open_mpi("sm", Best, Any, &[SM]),
        sm("sm-64k", Best, Any, "65536", "8"),
        sm("sm-1m", Best, Few, "1048576", "8"),
        sm("sm-32k", Further, Any, "32768", "16"),
        sm("sm-256k", Further, Few, "262144", "8"),
        sm("sm-256k-4", Further, Few, "262144", "4"),
        open_mpi("adapt", Further, Any, &[("coll_adapt_priority", "100")]),
        open_mpi("no-cma", Further, Any, &[("smsc", "^cma")]),
        ucx("ucx", Best, &[posix, no_rendezvous]),
        ucx("ucx-cma", Further, &[("UCX_TLS", "posix,cma,self")]),
        ucx("ucx-cma-eager", Further, &[("UCX_TLS", "posix,cma,self"), no_rendezvous]),
        ucx("ucx-rendezvous", Further, &[posix]),
        ucx("ucx-32k", Further, &[posix, no_rendezvous, ("UCX_POSIX_SEG_SIZE", "32k")]),
        ucx("ucx-128k", Further, &[posix, no_rendezvous, ("UCX_POSIX_SEG_SIZE", "128k")]),
    ]
}

fn mpich() -> Vec<Contestant> {
    use Fits::{Few, Many};
    use Rank::{Best, Further, Installed};
    let mpich =
        |suffix: &str, rank, fits, settings: Settings| Contestant::new(Library::Mpich, suffix, rank, fits, settings);
    let cells = |suffix, rank, bytes, cells| {
        let sizes = [
            ("MPIR_CVAR_COLL_SHM_LIMIT_PER_NODE", "1048576"),
            ("MPIR_CVAR_BCAST_INTRANODE_BUFFER_TOTAL_SIZE", bytes),
            ("MPIR_CVAR_BCAST_INTRANODE_NUM_CELLS", cells),
            ("MPIR_CVAR_REDUCE_INTRANODE_BUFFER_TOTAL_SIZE", bytes),
            ("MPIR_CVAR_REDUCE_INTRANODE_NUM_CELLS", cells),
        ];
        mpich(suffix, rank, Few, &sizes).release_gather()
    };
    let yields = ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1");
    vec![
        mpich("", Installed, Few, &[]),
        mpich("rg", Best, Few, &[]).release_gather(),
        cells("rg-256k", Best, "262144", "4"),
        cells("rg-1m", Best, "1048576", "4"),
        cells("rg-16m", Best, "16777216", "4"),
        cells("rg-64k", Further, "65536", "4"),
        cells("rg-4m", Further, "4194304", "4"),
        cells("rg-1m-2", Further, "1048576", "2"),
        cells("rg-512k-8", Further, "524288", "8"),
        mpich("ipc", Further, Few, &[("MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM", "ipc_read")]),
        mpich("no-cma", Further, Few, &[("MPIR_CVAR_CH4_CMA_ENABLE", "0")]),
        mpich("mpir", Further, Few, &[]).algorithms("mpir"),
        mpich("mpir-yield", Best, Many, &[yields]).algorithms("mpir"),
        mpich("yield", Further, Many, &[yields]),
    ]
}

fn intel_mpi() -> Vec<Contestant> {
    use Fits::{Any, Few, Many};
    use Rank::{Best, Further, Installed};
    let intel =
        |suffix: &str, rank, fits, settings: Settings| Contestant::new(Library::IntelMpi, suffix, rank, fits, settings);
    let mut all = vec![
        intel("", Installed, Few, &[]),
        intel("wait", Installed, Many, &[("I_MPI_WAIT_MODE", "1")]),
        intel("t1", Best, Few, &[("I_MPI_ADJUST_BCAST", "12"), ("I_MPI_ADJUST_ALLREDUCE", "13")]),
        intel(
            "t2",
            Best,
            Few,
            &[("I_MPI_ADJUST_BCAST", "1"), ("I_MPI_ADJUST_REDUCE", "7"), ("I_MPI_ADJUST_ALLREDUCE", "8")],
        ),
        intel("yield", Best, Many, &[("I_MPI_THREAD_YIELD", "2")]),
        intel("yield-1", Further, Many, &[("I_MPI_THREAD_YIELD", "1")]),
        intel("yield-3", Further, Many, &[("I_MPI_THREAD_YIELD", "3")]),
        intel("shm-icx", Further, Few, &[("I_MPI_SHM", "icx")]),
        intel("auto", Further, Few, &[("I_MPI_TUNING_MODE", "auto")]),
    ];
    for machine in ["icx", "gnr", "emr"] {
        let file = format!("{{home}}/opt/mpi/etc/tuning_{machine}_shm.dat");
        all.push(intel(machine, Further, Any, &[("I_MPI_TUNING_BIN", &file)]));
    }
    for (collective, variable, algorithms) in INTEL_FAMILIES {
        for algorithm in 1..=algorithms {
            let suffix = format!("{collective}-{algorithm}");
            let setting = intel(&suffix, Further, Few, &[(variable, &algorithm.to_string())]);
            all.push(Contestant { only: Some(collective), ..setting });
        }
    }
    all
}

fn debian() -> Vec<Contestant> {
    use Fits::{Any, Few, Many};
    use Library::{DebianMpich, DebianOpenMpi};
    use Rank::Further;
    let vader = ("btl", "self,vader");
    vec![
        Contestant::new(DebianOpenMpi, "", Further, Any, &[vader]),
        Contestant::new(DebianOpenMpi, "sm", Further, Any, &[vader, SM]),
        Contestant::new(DebianOpenMpi, "no-cma", Further, Any, &[vader, ("btl_vader_single_copy_mechanism", "none")]),
        Contestant::new(DebianMpich, "", Further, Few, &[]),
        Contestant::new(DebianMpich, "rg", Further, Few, &[]).release_gather(),
        Contestant::new(DebianMpich, "mpir-yield", Further, Many, &[("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")])
            .algorithms("mpir"),
    ]
}
