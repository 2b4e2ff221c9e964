//! All-pairs shortest paths by parallel Floyd-Warshall (Luo's dissertation, section 6.3.3): every
//! rank owns a block of rows of the distance matrix, and in step k the owner of row k broadcasts it.
//!
//! The graph joins each of the world's airports with its nearest neighbours, both ways; its weights
//! are great-circle distances in whole metres, so that results are exact.
//!
//! `han run -n 4 -- target/release/asp [--airports N] [--neighbours K] [--alloc private|shared] [--check]`
//!
//! `--alloc shared` keeps the rows that are broadcast in memory that the other ranks can map.
//! `--check` runs once more on rank 0 alone and compares every row.

use han::{Communicator, Context, Operator, TwoInt};
use std::error::Error;
use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const AIRPORTS: &str = include_str!("../../data/airports.csv");
const EARTH_RADIUS_METRES: f64 = 6_371_008.8;
/// Two of these still fit into an i32, so that adding to it needs no test.
const UNREACHABLE: i32 = i32::MAX / 2;

struct Airport {
    name: String,
    /// Unit vector from the centre of the earth.
    position: [f64; 3],
}

/// This rank's rows of the distance matrix.
struct Block {
    rows: Range<usize>,
    columns: usize,
    metres: Vec<i32>,
}

impl Block {
    fn row_mut(&mut self, row: usize) -> &mut [i32] {
        let start = (row - self.rows.start) * self.columns;
        &mut self.metres[start..start + self.columns]
    }
}

/// Contiguous share of `count` items; shares differ by one item at most.
fn share(count: usize, rank: usize, size: usize) -> Range<usize> {
    count * rank / size..count * (rank + 1) / size
}

fn index(number: usize) -> i32 {
    i32::try_from(number).expect("the matrix has fewer than 2^31 elements")
}

/// The first `count` airports of the table.
fn airports(count: usize) -> Vec<Airport> {
    let airport = |row: &str| {
        let fields: Vec<&str> = row.splitn(5, ',').collect(); // the city may hold a comma
        let radians = |field: usize| fields[field].parse::<f64>().expect("airports.csv holds degrees").to_radians();
        let (lat, lon) = (radians(1), radians(2));
        Airport {
            name: format!("{} ({}, {})", fields[0], fields[4], fields[3]),
            position: [lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()],
        }
    };
    AIRPORTS.lines().skip(1).take(count).map(airport).collect()
}

/// Each airport's `neighbours` nearest others: distance in metres, and which.
fn nearest_neighbours(airports: &[Airport], neighbours: usize) -> Vec<TwoInt> {
    let mut edges = Vec::with_capacity(airports.len() * neighbours);
    for (from, here) in airports.iter().enumerate() {
        // The straight line through the earth orders as the great circle does, and is cheaper.
        let square = |there: &Airport| -> f64 {
            let pairs = here.position.iter().zip(&there.position);
            pairs.map(|(a, b)| (a - b) * (a - b)).sum()
        };
        let mut others: Vec<(f64, usize)> = airports.iter().map(square).zip(0..).collect();
        others.remove(from);
        others.sort_by(|a, b| a.0.total_cmp(&b.0)); // stable: the first of equals stays first
        for &(square, to) in &others[..neighbours] {
            let metres = EARTH_RADIUS_METRES * 2.0 * (square.sqrt() / 2.0).asin();
            #[allow(clippy::cast_possible_truncation)] // at most half the equator, 20,015,115 m
            edges.push(TwoInt::new(metres.round() as i32, index(to)));
        }
    }
    edges
}

/// This rank's block of the weight matrix. Rank 0 builds the graph and broadcasts it, so that all
/// ranks work on the same numbers even if their mathematical libraries round differently.
fn load(comm: &Communicator, airports: &[Airport], neighbours: usize) -> han::Result<Block> {
    let columns = airports.len();
    let mut edges = vec![TwoInt::new(0, 0); columns * neighbours];
    if comm.rank() == 0 {
        edges = nearest_neighbours(airports, neighbours);
    }
    comm.bcast(&mut edges, 0)?;

    let rows = share(columns, comm.rank(), comm.size());
    let mut block = Block { metres: vec![UNREACHABLE; rows.len() * columns], rows, columns };
    for row in block.rows.clone() {
        block.row_mut(row)[row] = 0;
    }
    for (from, edges) in edges.chunks_exact(neighbours).enumerate() {
        for edge in edges {
            let to = usize::try_from(edge.index).expect("rank 0 sends indices");
            for (row, column) in [(from, to), (to, from)] {
                if block.rows.contains(&row) {
                    block.row_mut(row)[column] = edge.value;
                }
            }
        }
    }
    Ok(block)
}

/// Replaces weights by the lengths of the shortest paths; returns the time spent in broadcasts.
///
/// `row_k` is the buffer of the broadcasts, a row long.
fn floyd_warshall(comm: &Communicator, block: &mut Block, row_k: &mut [i32]) -> han::Result<Duration> {
    let mut communicating = Duration::ZERO;
    for owner in 0..comm.size() {
        for k in share(block.columns, owner, comm.size()) {
            if comm.rank() == owner {
                row_k.copy_from_slice(block.row_mut(k));
            }
            let start = Instant::now();
            comm.bcast(row_k, owner)?;
            communicating += start.elapsed();

            for row in block.metres.chunks_exact_mut(block.columns) {
                let to_k = row[k];
                if to_k == UNREACHABLE {
                    continue;
                }
                for (metres, from_k) in row.iter_mut().zip(&*row_k) {
                    *metres = (*metres).min(to_k + from_k);
                }
            }
        }
    }
    Ok(communicating)
}

/// A line on standard output; `println!` panics where that is full, or closed.
fn print(line: &str) -> Result<(), Box<dyn Error>> {
    Ok(writeln!(io::stdout(), "{line}").map_err(|error| format!("cannot write to standard output: {error}"))?)
}

/// Prints the pair of airports that are furthest apart, and a digest of the whole matrix.
fn report(comm: &Communicator, airports: &[Airport], block: &Block) -> Result<(), Box<dyn Error>> {
    let n = block.columns;
    let mut furthest = [TwoInt::new(0, 0)];
    let mut unreachable = [0_u64];
    let mut digest = [0_u64]; // exclusive or, over the rows, of FNV-1a over row number and row
    for (row, metres) in block.rows.clone().zip(block.metres.chunks_exact(n)) {
        let mut row_digest = 0xcbf2_9ce4_8422_2325_u64;
        for word in std::iter::once(&index(row)).chain(metres) {
            row_digest ^= u64::from(word.cast_unsigned());
            row_digest = row_digest.wrapping_mul(0x0100_0000_01b3);
        }
        digest[0] ^= row_digest;
        for (column, &metres) in metres.iter().enumerate() {
            if metres == UNREACHABLE {
                unreachable[0] += 1;
            } else if metres > furthest[0].value {
                furthest[0] = TwoInt::new(metres, index(row * n + column));
            }
        }
    }
    comm.allreduce_in_place(&mut furthest, Operator::Maxloc)?;
    comm.allreduce_in_place(&mut unreachable, Operator::Sum)?;
    comm.allreduce_in_place(&mut digest, Operator::Bxor)?;
    if comm.rank() == 0 {
        let metres = furthest[0].value;
        let pair = usize::try_from(furthest[0].index).expect("an index is not negative");
        let (from, to) = (&airports[pair / n].name, &airports[pair % n].name);
        print(&format!("longest of the shortest paths: {from} to {to}, {}.{:03} km", metres / 1000, metres % 1000))?;
        print(&format!("pairs without a path: {}", unreachable[0]))?;
        print(&format!("digest of the {n} x {n} distances: {:016x}", digest[0]))?;
    }
    Ok(())
}

/// Prints the times, as means over the ranks.
fn report_times(comm: &Communicator, total: Duration, communicating: Duration) -> Result<(), Box<dyn Error>> {
    let mut seconds = [total.as_secs_f64(), communicating.as_secs_f64()];
    comm.allreduce_in_place(&mut seconds, Operator::Sum)?;
    let [total, communicating] = seconds.map(|sum| sum / comm.size() as f64);
    if comm.rank() == 0 {
        print(&format!(
            "{} ranks, {total:.3} s: computing {:.3} s, communicating {communicating:.3} s ({:.0} %)",
            comm.size(),
            total - communicating,
            100.0 * communicating / total
        ))?;
    }
    Ok(())
}

/// Solves once more on rank 0 alone and fails unless every row is the same.
fn check(
    world: &Communicator,
    airports: &[Airport],
    neighbours: usize,
    block: &mut Block,
) -> Result<(), Box<dyn Error>> {
    let mut serial = None;
    if let Some(alone) = world.split((world.rank() == 0).then_some(0), 0)? {
        let mut block = load(&alone, airports, neighbours)?;
        floyd_warshall(&alone, &mut block, &mut vec![0; airports.len()])?;
        serial = Some(block);
    }
    let mut row = vec![0; block.columns];
    let mut wrong = [0_u64];
    for owner in 0..world.size() {
        for k in share(block.columns, owner, world.size()) {
            if world.rank() == owner {
                row.copy_from_slice(block.row_mut(k));
            }
            world.bcast(&mut row, owner)?;
            if let Some(serial) = &mut serial {
                wrong[0] += u64::from(row != serial.row_mut(k));
            }
        }
    }
    world.bcast(&mut wrong, 0)?;
    if wrong[0] > 0 {
        return Err(format!("{} rows differ from the serial run's", wrong[0]).into());
    }
    if world.rank() == 0 {
        print(&format!("check: all {} rows equal the serial run's", block.columns))?;
    }
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    const USAGE: &str = "usage: asp [--airports N] [--neighbours K] [--alloc private|shared] [--check], with N from 2";
    let (mut count, mut neighbours, mut shared, mut checked) = (usize::MAX, 8, false, false);
    let mut arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|value| value.parse().ok()).ok_or(USAGE);
        match argument.as_str() {
            "--check" => checked = true,
            "--alloc" => match arguments.next().as_deref() {
                Some("private") => shared = false,
                Some("shared") => shared = true,
                _ => return Err(USAGE.into()),
            },
            "--airports" => count = number()?,
            "--neighbours" => neighbours = number()?,
            _ => return Err(USAGE.into()),
        }
    }
    let airports = airports(count);
    if airports.len() < 2 || neighbours == 0 {
        return Err(USAGE.into());
    }
    let neighbours = neighbours.min(airports.len() - 1);

    let context = Context::init()?;
    let world = context.world();
    let mut block = load(world, &airports, neighbours)?;
    let start = Instant::now();
    let communicating = if shared {
        floyd_warshall(world, &mut block, &mut world.alloc(airports.len())?)?
    } else {
        floyd_warshall(world, &mut block, &mut vec![0; airports.len()])?
    };
    let total = start.elapsed();
    report(world, &airports, &block)?;
    report_times(world, total, communicating)?;
    if checked {
        check(world, &airports, neighbours, &mut block)?;
    }
    context.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "asp: {error}");
            ExitCode::FAILURE
        }
    }
}
