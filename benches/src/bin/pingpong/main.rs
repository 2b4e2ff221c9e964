//! `pingpong`: latency and bandwidth of the transport between two processes, beside libfabric's own `fi_pingpong`
//! over the same provider, in turns.
//!
//! Both are started here, as two processes each, which may be put behind a prefix (a network namespace, say).

mod ours;
mod theirs;

use std::process::ExitCode;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// Any error, for people.
type Failure = Box<dyn std::error::Error>;

/// Times messages between two processes, and fi_pingpong's (package libfabric-bin) in turns.
#[derive(Parser)]
#[command(name = "pingpong")]
struct Args {
    #[command(flatten)]
    what: What,

    /// Rounds of both in turns; the best of each is compared, the spread is shown
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// A prefix for the process of each node, {node} being 0 or 1, such as 'ip netns exec han{node}'
    #[arg(long, value_name = "PREFIX {node}")]
    node_exec: Option<String>,

    /// Where node 1 finds node 0
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    server: String,

    /// The interface of fi_pingpong's endpoints (its -d); ours are where the server's address is
    #[arg(long, default_value = "lo")]
    domain: String,

    /// Without fi_pingpong
    #[arg(long)]
    alone: bool,

    #[command(subcommand)]
    role: Option<Role>,
}

/// What is timed, on both sides alike.
#[derive(ClapArgs, Clone)]
struct What {
    /// The provider, as fi_info names it
    #[arg(long, global = true, default_value = "tcp")]
    provider: String,

    /// Bytes of the messages
    #[arg(long, global = true, value_delimiter = ',', default_value = "8,64,1024,16384,65536,262144,1048576,4194304")]
    bytes: Vec<usize>,

    /// Messages in each direction for the smallest sizes; large ones are fewer
    #[arg(long, global = true, default_value_t = 5000)]
    iterations: usize,

    /// Completion queues without a wait object
    #[arg(long, global = true)]
    no_wait: bool,
}

impl What {
    /// Fewer for large messages: all together at most 256 MiB each way, but 20 at least.
    fn iterations_of(&self, bytes: usize) -> usize {
        self.iterations.min(((256 << 20) / bytes.max(1)).max(20))
    }
}

#[derive(Subcommand, Clone)]
enum Role {
    /// One of our two processes (used by this program)
    #[command(hide = true)]
    Rank {
        /// Which
        rank: usize,
        /// Rank 0 listens here for the exchange of addresses
        control: String,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.role {
        Some(Role::Rank { rank, control }) => ours::run(&args.what, *rank, control),
        None => compare(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pingpong: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One way's time of each size in each round, in microseconds.
type Times = Vec<Vec<f64>>;

fn compare(args: &Args) -> Result<(), Failure> {
    let mut ours: Times = vec![Vec::new(); args.what.bytes.len()];
    let mut theirs: Times = vec![Vec::new(); args.what.bytes.len()];
    for round in 0..args.rounds {
        let port = 20_000 + u16::try_from((std::process::id() as usize * 16 + round) % 20_000)?;
        let (provider, times) = ours::spawn(args, port)?;
        if round == 0 {
            println!("han: {provider}");
        }
        for (all, time) in ours.iter_mut().zip(times) {
            all.push(time);
        }
        if !args.alone {
            for (place, &bytes) in args.what.bytes.iter().enumerate() {
                theirs[place].push(theirs::spawn(args, bytes, port)?);
            }
        }
    }
    println!(
        "{:>9}  {:>26}  {:>26}  {:>7}  {:>10}",
        "bytes", "han us (spread)", "fi_pingpong us (spread)", "ratio", "han MB/s"
    );
    for (place, &bytes) in args.what.bytes.iter().enumerate() {
        let (own, other) = (best(&ours[place]), best(&theirs[place]));
        let ratio = if args.alone { String::new() } else { format!("{:.2}", own / other) };
        #[allow(clippy::cast_precision_loss)] // For people.
        let rate = bytes as f64 / own;
        println!("{bytes:>9}  {:>26}  {:>26}  {ratio:>7}  {rate:>10.1}", spread(&ours[place]), spread(&theirs[place]));
    }
    Ok(())
}

fn best(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

fn spread(times: &[f64]) -> String {
    let most = times.iter().copied().fold(0.0, f64::max);
    if times.is_empty() { String::new() } else { format!("{:.2} ({:.2}..{most:.2})", best(times), best(times)) }
}

/// A command behind the prefix of its node.
fn command(args: &Args, node: usize, program: &str) -> std::process::Command {
    let prefix = args.node_exec.as_deref().unwrap_or_default().replace("{node}", &node.to_string());
    let mut words = prefix.split_whitespace().chain([program]);
    let mut command = std::process::Command::new(words.next().unwrap_or(program));
    command.args(words);
    command
}
