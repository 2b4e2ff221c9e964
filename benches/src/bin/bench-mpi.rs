//! `bench-mpi`: one unmodified MPI program, `collbench`, with and without `libhan_mpi.so`, in turns.
//!
//! Each round runs the program alone, with the library, and as a program of han's own under the same launcher, the order
//! changing from round to round; what is printed are medians over rounds, and the ratio of the first two with its least
//! and largest value. Only turns in the same state of the machine are compared, so collectives have turns of their own: short ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use benches::contestants::{self, Job, Library, Places};
use benches::job::{Row, Style, Task, world};
use benches::machine::State;
use benches::network::Network;
use benches::table::{Table, bytes_text, median, us_text};
use benches::testbed::{self, Testbed};
use benches::{Result, job, machine};
use clap::Parser;

/// Below this share of the MPI's own speed a size is listed as slower.
const LEAST_RATIO: f64 = 0.97;

/// Times collectives of MPI programs with and without libhan_mpi.so; prints a table for each MPI and job.
#[derive(Parser)]
#[command(name = "bench-mpi")]
struct Args {
    /// MPIs: openmpi, mpich, intelmpi, debian-mpich; those that are not installed are left out
    #[arg(long, value_delimiter = ',', default_value = "openmpi,mpich,intelmpi")]
    mpis: Vec<String>,
    /// Numbers of ranks on this machine
    #[arg(long, value_delimiter = ',', default_value = "2,4,8", value_parser = clap::value_parser!(u8).range(2..))]
    ranks: Vec<u8>,
    /// Nodes with two ranks each, as network namespaces of this machine, which needs root; 0 for none
    #[arg(long, default_value_t = 2)]
    nodes: u8,
    /// Collectives
    #[arg(long, value_delimiter = ',', default_value = "barrier,bcast,reduce,allreduce")]
    collectives: Vec<String>,
    /// Bytes [default: powers of 4 from 4 to 16 MiB]
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// How often everybody has a turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Length of a repeat in milliseconds; a turn has five
    #[arg(long, default_value_t = 4)]
    ms: u64,
    /// Seconds that one turn may take
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Seconds to wait for others to leave the machine alone before a turn starts all the same
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// Further options of collbench, such as --rotate-roots, after =
    #[arg(long, value_delimiter = ' ', value_name = "OPTIONS", allow_hyphen_values = true)]
    further: Vec<String>,
    /// Where Open MPI, MPICH and Intel MPI are installed
    #[arg(long, default_value = ".peers")]
    rivals: PathBuf,
    /// The script that makes nodes
    #[arg(long, default_value = "benches/testbed")]
    testbed: PathBuf,
}

/// Who carries out the collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Alone,
    With,
    Native,
}

const WAYS: [Way; 3] = [Way::Alone, Way::With, Way::Native];

/// Microseconds of the rounds that have succeeded, each in the state of the machine around it.
type Rounds = BTreeMap<(State, u32), f64>;

/// By collective, bytes and way.
type Times = BTreeMap<(String, usize), BTreeMap<Way, Rounds>>;

fn main() -> ExitCode {
    match compare(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-mpi: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &Args) -> Result<()> {
    let places = Places::of(None, &args.rivals, &args.testbed)?;
    let library = places.han.with_file_name("libhan_mpi.so");
    if !library.exists() {
        return Err(format!("{} is missing: run `make build`", library.display()).into());
    }
    println!("# MPI programs with libhan_mpi.so, {}, {}", machine::date()?, machine::name());
    if args.nodes > 1 && testbed::has_groups() {
        println!("\n{}.", testbed::GROUPS_OFF);
    }
    let mut failures = 0;
    for library_of in libraries(&args.mpis)? {
        if !places.programs.join(library_of.word()).exists() {
            eprintln!("bench-mpi: {} is left out: benches/build-collbench.sh has found none", library_of.name());
            continue;
        }
        for (ranks, network) in worlds(args)? {
            let task = task(args, ranks, network);
            let testbed = network.map(|network| Testbed::up_to_measure(&places.testbed, network)).transpose()?;
            let preload = format!("LD_PRELOAD={}", library.display());
            let (times, failed) = measure(args, &places, library_of, &task, &preload, testbed.as_ref())?;
            failures += failed;
            println!("\n## {} on {}\n\n{}", library_of.name(), world(ranks, network.as_ref()), table(&times));
        }
    }
    if failures > 0 {
        return Err(format!("{failures} turns have failed; what was wrong is in no table").into());
    }
    Ok(())
}

/// The libraries of these names.
fn libraries(names: &[String]) -> Result<Vec<Library>> {
    const ALL: [Library; 4] = [Library::OpenMpi, Library::Mpich, Library::IntelMpi, Library::DebianMpich];
    let find = |name: &String| {
        let found = ALL.into_iter().find(|library| library.word() == name);
        found.ok_or_else(|| format!("`{name}` is none of {}", ALL.map(Library::word).join(", ")).into())
    };
    names.iter().map(find).collect()
}

fn worlds(args: &Args) -> Result<Vec<(usize, Option<Network>)>> {
    let mut all: Vec<_> = args.ranks.iter().map(|&ranks| (usize::from(ranks), None)).collect();
    if args.nodes > 1 {
        let nodes = usize::from(args.nodes);
        all.push((2 * nodes, Some(Network { nodes, rate: "0".parse()? })));
    }
    Ok(all)
}

fn task(args: &Args, ranks: usize, network: Option<Network>) -> Task {
    let usual = || (1..=12).map(|power| 4 << (2 * (power - 1))).collect();
    Task {
        ranks,
        network,
        collectives: args.collectives.clone(),
        sizes: if args.sizes.is_empty() { usual() } else { args.sizes.clone() },
        style: Style::Osu,
        repeats: 5,
        ms: args.ms,
        further: args.further.clone(),
    }
}

/// Has all rounds of one job; a turn that fails is told of, counted, and left out.
fn measure(
    args: &Args,
    places: &Places,
    library: Library,
    task: &Task,
    preload: &str,
    testbed: Option<&Testbed>,
) -> Result<(Times, u32)> {
    let (mut times, mut busy, mut failures) = (Times::new(), 0, 0);
    let cores = machine::cores();
    for round in 0..args.rounds {
        let mut ways = WAYS;
        ways.rotate_left(round as usize % WAYS.len());
        for (collective, way) in args.collectives.iter().flat_map(|collective| ways.map(|way| (collective, way))) {
            let task = Task { collectives: vec![collective.clone()], ..task.clone() };
            let Some(contestant) = contestants::usual(library, &task, cores) else { continue };
            let program = places.programs.join(if way == Way::Native { Library::Han } else { library }.word());
            let job = job_of(&program, &task, if way == Way::With { preload } else { "LD_PRELOAD=" });
            let mut command = contestant.start(places, &job, cores, args.timeout);
            if let Some(testbed) = testbed {
                testbed.enter(&mut command);
            }
            busy += u32::from(!machine::wait_for_quiet(Duration::from_secs(args.patience)));
            let before_ns = machine::one_way_ns(&places.han)?;
            match job::run(&mut command) {
                Ok(outcome) => {
                    let state = State::between(before_ns, machine::one_way_ns(&places.han)?);
                    keep(&mut times, outcome.rows, way, (state, round));
                    if let Some(why) = outcome.failure {
                        failures += 1;
                        eprintln!("bench-mpi: {}, round {round}: {why}", contestant.name);
                    }
                }
                Err(error) => {
                    failures += 1;
                    eprintln!("bench-mpi: {}: {error}", contestant.name);
                }
            }
        }
    }
    if busy > 0 {
        eprintln!("bench-mpi: {busy} turns had a busy machine");
    }
    Ok((times, failures))
}

/// Keeps the times of right results.
fn keep(times: &mut Times, rows: Vec<Row>, way: Way, at: (State, u32)) {
    for row in rows.into_iter().filter(|row| row.verified) {
        let ways = times.entry((row.coll, row.bytes)).or_default();
        ways.entry(way).or_default().insert(at, row.us_median);
    }
}

/// The program behind `env`, which sets one variable for it and not for its launcher.
fn job_of(program: &Path, task: &Task, variable: &str) -> Job {
    let words = [variable.to_owned(), program.display().to_string()];
    let arguments = words.into_iter().chain(task.arguments("malloc")).collect();
    Job { ranks: task.ranks, network: task.network, program: "/usr/bin/env".into(), arguments }
}

fn table(times: &Times) -> String {
    let columns = ["", "bytes", "alone us", "with us", "ratio", "least", "largest", "rounds", "native us", "state", ""];
    let mut table = Table::new(columns);
    for ((coll, bytes), ways) in times {
        let state = usual_state(ways);
        let of = |way| median(in_state(ways, way, state).map(|(_, us)| us).collect());
        let ratios = ratios(ways, state);
        let ratio = median(ratios.clone());
        let shown = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        table.add([
            coll.clone(),
            bytes_text(*bytes),
            us_text(of(Way::Alone)),
            us_text(of(Way::With)),
            shown(ratio),
            shown(ratios.iter().copied().reduce(f64::min)),
            shown(ratios.iter().copied().reduce(f64::max)),
            ratios.len().to_string(),
            us_text(of(Way::Native)),
            state.name().to_owned(),
            if ratio.is_some_and(|ratio| ratio < LEAST_RATIO) { "slower" } else { "" }.to_owned(),
        ]);
    }
    table.markdown()
}

/// The state in which most rounds can be compared.
fn usual_state(ways: &BTreeMap<Way, Rounds>) -> State {
    if ratios(ways, State::Far).len() > ratios(ways, State::Near).len() { State::Far } else { State::Near }
}

/// The rounds of a way in this state, with their numbers.
fn in_state(ways: &BTreeMap<Way, Rounds>, way: Way, state: State) -> impl Iterator<Item = (u32, f64)> {
    let rounds = ways.get(&way).into_iter().flatten();
    rounds.filter(move |((of, _), _)| *of == state).map(|(&(_, round), &us)| (round, us))
}

/// How many times as fast the library is, round by round.
fn ratios(ways: &BTreeMap<Way, Rounds>, state: State) -> Vec<f64> {
    let with: BTreeMap<u32, f64> = in_state(ways, Way::With, state).collect();
    in_state(ways, Way::Alone, state).filter_map(|(round, us)| Some(us / with.get(&round)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_wrong_results_are_not_kept() {
        let row = |bytes: usize, verified: bool| {
            let line = format!(
                "{{\"coll\":\"bcast\",\"bytes\":{bytes},\"ranks\":2,\"dtype\":\"f32\",\"style\":\"osu\",\"cold\":false,\
                 \"alloc\":\"malloc\",\"buffers\":1,\"rotate_roots\":false,\"in_place\":false,\"iters\":5,\
                 \"repeats\":5,\"us_min\":0.1,\"us_median\":0.2,\"us_max\":0.3,\"verified\":{verified}}}"
            );
            serde_json::from_str(&line).expect("a row")
        };
        let mut times = Times::new();
        keep(&mut times, vec![row(8, true), row(64, false)], Way::With, (State::Near, 3));
        let kept = BTreeMap::from([(Way::With, Rounds::from([((State::Near, 3), 0.2)]))]);
        assert_eq!(times.into_iter().collect::<Vec<_>>(), [(("bcast".to_owned(), 8), kept)]);
    }

    #[test]
    fn ratios_compare_within_rounds_and_states() {
        let rounds =
            |times: &[(State, u32, f64)]| times.iter().map(|&(state, round, us)| ((state, round), us)).collect();
        let (near, far) = (State::Near, State::Far);
        let alone: Rounds =
            rounds(&[(near, 0, 4.0), (near, 1, 9.0), (near, 2, 1.0), (far, 3, 50.0), (State::Changed, 4, 5.0)]);
        let with = rounds(&[(near, 0, 2.0), (near, 1, 3.0), (far, 2, 10.0), (far, 3, 10.0), (State::Changed, 4, 1.0)]);
        let mut ways = BTreeMap::from([(Way::Alone, alone), (Way::With, with)]);
        assert_eq!((ratios(&ways, near), ratios(&ways, far)), (vec![2.0, 3.0], vec![5.0]));
        let times = Times::from([(("bcast".to_owned(), 4096), ways.clone())]);
        assert!(table(&times).contains("| bcast |    4K |     4.00 |    2.00 |  2.00 |  2.00 |    3.00 |      2 |"));
        ways.entry(Way::Alone).or_default().extend([((far, 2), 20.0), ((far, 4), 1.0)]);
        assert_eq!(usual_state(&ways), near, "as many");
        ways.entry(Way::With).or_default().insert((far, 4), 1.0);
        assert_eq!(usual_state(&ways), far);
    }
}
