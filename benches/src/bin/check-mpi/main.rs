//! `check-mpi`: MPI programs with and without `libhan_mpi.so`, which must print the same to the last letter.
//!
//! The programs in `han/mpi/check` are compiled with every MPI that is installed (`build`), run on several numbers of
//! ranks, and over nodes that this machine plays, by the MPI's own launcher (`run`). What they print without the library
//! is kept beside them, as it depends on the program and the MPI alone.

mod build;
mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use benches::Result;
use benches::contestants::Places;
use benches::network::Network;
use benches::testbed::Testbed;
use clap::Parser;

use crate::build::{Mpi, Program};
use crate::run::{Outcome, Runner};

/// Compares what MPI programs print with and without libhan_mpi.so.
#[derive(Parser)]
#[command(name = "check-mpi")]
struct Args {
    /// MPIs [default: all that are installed]: openmpi, mpich, mpich-abi, intelmpi, intelmpi-abi, debian-mpich,
    /// debian-openmpi
    #[arg(long, value_delimiter = ',')]
    mpis: Vec<String>,
    /// Programs, by their names without ending [default: all]
    #[arg(long, value_delimiter = ',')]
    programs: Vec<String>,
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5,6,7,8", value_parser = clap::value_parser!(u16).range(1..=64))]
    ranks: Vec<u16>,
    /// Nodes with two ranks each, as network namespaces of this machine, which needs root; 0 for none
    #[arg(long, default_value_t = 2)]
    nodes: u8,
    /// Seconds that one run may take
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// The library [default: libhan_mpi.so beside han]
    #[arg(long)]
    library: Option<PathBuf>,
    /// The programs' sources
    #[arg(long, default_value = "han/mpi/check")]
    sources: PathBuf,
    /// Where Open MPI, MPICH and Intel MPI are installed
    #[arg(long, default_value = ".peers")]
    rivals: PathBuf,
    /// The script that makes nodes
    #[arg(long, default_value = "benches/testbed")]
    testbed: PathBuf,
    /// Where han is, and the compiled programs are kept [default: the directory of this program]
    #[arg(long)]
    release: Option<PathBuf>,
}

/// Where and on how many ranks a program runs.
#[derive(Clone, Copy)]
struct World {
    ranks: usize,
    network: Option<Network>,
}

impl World {
    fn name(&self) -> String {
        self.network.map_or_else(|| self.ranks.to_string(), |network| format!("{}-on-{}", self.ranks, network.nodes))
    }
}

fn main() -> ExitCode {
    match check(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("check-mpi: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything was the same.
fn check(args: &Args) -> Result<bool> {
    let mut places = Places::of(args.release.as_deref(), &args.rivals, &args.testbed)?;
    places.han = existing(&places.han)?;
    places.programs = places.han.with_file_name("mpi-programs");
    let library = places.han.with_file_name("libhan_mpi.so");
    let library = existing(args.library.as_ref().unwrap_or(&library))?;
    let programs = build::programs(&existing(&args.sources)?, &args.programs)?;
    let mpis = build::installed(&places.rivals, &args.mpis)?;
    let network = Network { nodes: args.nodes.into(), rate: "0".parse()? };
    let testbed = if args.nodes > 1 { Some(Testbed::up(&places.testbed, network)?) } else { None };
    let runner = Runner { places, library, timeout_s: args.timeout, testbed };
    let mut tally = Tally::default();
    for mpi in &mpis {
        for program in &programs {
            check_program(&runner, args, mpi, program, &mut tally)?;
        }
    }
    println!("\n{} comparisons, {} failed, {} left out", tally.compared, tally.failed, tally.left_out);
    Ok(tally.failed == 0 && tally.compared > 0)
}

#[derive(Default)]
struct Tally {
    compared: u32,
    failed: u32,
    left_out: u32,
}

/// Builds a program and runs it everywhere; prints one line for it, and one for each difference.
fn check_program(runner: &Runner, args: &Args, mpi: &Mpi, program: &Program, tally: &mut Tally) -> Result<()> {
    let title = format!("{:<14} {:<18}", mpi.name, program.name);
    if let Some(why) = mpi.lacks(program) {
        println!("{title} left out: {why}");
        tally.left_out += 1;
        return Ok(());
    }
    let binary = mpi.compile(program, &runner.places.programs)?;
    let (mut same, mut wrong, mut endless, mut calls) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for world in worlds(args, runner).filter(|world| mpi.can_run(world)) {
        match runner.compare(mpi, &binary, &world)? {
            Outcome::Same(taken) => {
                same.push(world.name());
                calls += taken;
            }
            Outcome::Missing(what) => {
                println!("{title} left out: {what}");
                tally.left_out += 1;
                return Ok(());
            }
            Outcome::Endless(seconds) => endless.push((world.name(), seconds)),
            Outcome::Different(why) => wrong.push(format!("    on {} ranks: {why}", world.name())),
        }
    }
    tally.compared += u32::try_from(same.len() + wrong.len())?;
    tally.failed += u32::try_from(wrong.len())?;
    tally.left_out += u32::try_from(endless.len())?;
    for (name, seconds) in &endless {
        println!("{title} left out on {name} ranks: the MPI alone does not finish it in {seconds} s");
    }
    if same.is_empty() && wrong.is_empty() && !endless.is_empty() {
        return Ok(());
    }
    let verdict = if wrong.is_empty() { "same" } else { "NOT THE SAME" };
    println!("{title} {verdict:<12} on {} ranks; {calls} calls taken", same.join(" "));
    for line in wrong {
        println!("{line}");
    }
    Ok(())
}

fn worlds<'a>(args: &'a Args, runner: &Runner) -> impl Iterator<Item = World> + 'a {
    let here = args.ranks.iter().map(|&ranks| World { ranks: ranks.into(), network: None });
    let network = runner.testbed.as_ref().map(|testbed| testbed.network);
    here.chain(network.map(|network| World { ranks: 2 * network.nodes, network: Some(network) }))
}

/// The path as an absolute one.
fn existing(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()).into())
}
