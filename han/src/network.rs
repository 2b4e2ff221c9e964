//! The nodes of a world and the network between them: how they are joined, and how an error on one reaches all.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use net_fabric::algorithm::Topology;
use net_fabric::transport::ofi;
use net_fabric::{FabricComm, Link, Patience, Ranks, Secret, Wait, Watch};
use reduce_kernels::Signature;
use shm_core::exchange::Exchange;
use shm_core::job::Job;
use shm_core::settings::Settings;
use shm_core::sys::socket::make_room_for_files;
use shm_core::topo::Level;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::nodes::{Nodes, OfNode};
use crate::parts::in_part;
use crate::placing::Placing;

/// What a rank has of the network.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) link: Rc<Link>,
    pub(crate) placing: Placing,
    /// By rank: its socket, as a number that ranks of a node have in common if they are on one.
    sockets: Vec<usize>,
    /// Whether ranks share cores somewhere; the same on all.
    pub(crate) shares_cores: bool,
    /// Megabits a second that the slowest node's wire carries, as far as the systems say; the same on all.
    pub(crate) wire_mbit_s: Option<u64>,
    /// libfabric's name of what carries messages: the same on all ranks, or they would not be connected.
    pub(crate) provider: String,
    /// Why nothing works any more.
    failure: RefCell<Option<net_fabric::Error>>,
    /// The others have had their moment to hear of it.
    has_spread: Cell<bool>,
}

/// Open files that a rank needs beside two for each other rank, which is how many two that connect to each other at once
/// have: for the questions whether peers live, and what the provider itself has.
const SPARE_FILES: usize = 128;

/// How often a rank that has a core to itself looks for messages before it looks whether anything else is to be done.
const OWN_CORE_READS: u32 = 4;

/// Joins the ranks of this node by its memory, and all by the network. Collective over `exchange`.
pub(crate) fn join(
    exchange: &mut dyn Exchange,
    placing: Placing,
    config: &Config,
) -> Result<(Rc<Job>, Network, Nodes)> {
    let mut settings = of_node(&config.settings, placing.crowded);
    let shares_cores = shares_cores(config.settings.assume_own_cores, placing.crowded_somewhere);
    if placing.has_neighbours && settings.assume_own_cores == Some(false) {
        // Whoever is waited for: a leader of a node that this one does not see may need this very core.
        settings.spins.get_or_insert(1);
    }
    settings.neighbours.clone_from(&placing.neighbours);
    let own_cores = settings.assume_own_cores.unwrap_or(true);
    let patience = if own_cores { Patience::OWN_CORE } else { Patience::SHARED_CORE };
    let patience = if settings.attentive { patience.attentive() } else { patience };
    let (job, of_node) = in_part(exchange, &placing.here, |part| {
        let job = Rc::new(Job::together(part, settings)?);
        let everybody: Vec<usize> = (0..placing.here.len()).collect();
        let of_node = OfNode::together(part, &job, 0, &everybody, &placing.nodes)?;
        Ok((job, of_node))
    })?;
    let reads = if own_cores { OWN_CORE_READS } else { 1 };
    let Connected { transport, provider, wire_mbit_s, sockets } =
        connect(exchange, &placing, config, reads, socket(&job))?;
    let seconds = |seconds: f64| (seconds > 0.0).then(|| Duration::from_secs_f64(seconds));
    let watch = Watch {
        speak_after: seconds(config.settings.watchdog_s),
        time_limit: seconds(config.settings.timeout_s),
        ..Watch::default()
    };
    let board = Rc::clone(&job);
    let ranks = Ranks::named(placing.names.clone()).watched_by(move |wait| post(&board, wait));
    let link = Rc::new(Link::new(Box::new(transport), Secret(placing.secret), ranks, watch, patience, job.strangers()));
    let flat = FabricComm::new(
        Rc::clone(&link),
        0,
        0,
        (0..exchange.size()).collect(),
        Some(Topology::new(&[&placing.nodes, &sockets])),
    )?;
    let world = Nodes::new(flat, &placing.nodes, of_node)?;
    Ok((
        job,
        Network {
            link,
            placing,
            sockets,
            shares_cores,
            wire_mbit_s,
            provider,
            failure: RefCell::default(),
            has_spread: Cell::default(),
        },
        world,
    ))
}

/// Whether choices are made for ranks that share cores, which they do if `crowded`, unless a setting says otherwise.
pub(crate) fn shares_cores(assume_own_cores: Option<bool>, crowded: bool) -> bool {
    assume_own_cores.map_or(crowded, |own| !own)
}

/// The settings of a node's ranks, which do not see those of other nodes on the same cores, if these are `crowded`.
pub(crate) fn of_node(settings: &Settings, crowded: bool) -> Settings {
    let mut settings = settings.clone();
    if crowded {
        settings.assume_own_cores.get_or_insert(false);
    }
    settings
}

/// The lowest rank of this node that is on this rank's socket; 0 where that is not known.
fn socket(job: &Job) -> usize {
    let (hierarchy, own) = (job.hierarchy(), job.rank());
    (0..hierarchy.size()).find(|&rank| hierarchy.distance(own, rank) <= Level::Socket).unwrap_or(0)
}

/// Writes down for `han status` what this rank waits for over the network.
fn post(board: &Job, wait: Option<&Wait<'_>>) {
    let Some(Wait { key, fingerprint, waited, ranks }) = wait else { return board.note_network_progress() };
    let signature = Signature { packed: fingerprint.0[0], count: fingerprint.0[1] };
    board.note_network_wait(key.communicator.into(), key.sequence, signature, *waited, ranks);
}

/// An endpoint that all ranks' are connected to.
struct Connected {
    transport: ofi::OfiTransport,
    provider: String,
    wire_mbit_s: Option<u64>,
    /// By rank: its socket on its node.
    sockets: Vec<usize>,
}

/// Opens this rank's endpoint and connects it to those of all ranks, which are told its `socket`. Collective over
/// `exchange`; an error of one rank is every rank's.
fn connect(
    exchange: &mut dyn Exchange,
    placing: &Placing,
    config: &Config,
    reads: u32,
    socket: usize,
) -> Result<Connected> {
    // A rank that may open no more accepts nobody, who then waits without an error.
    make_room_for_files(2 * placing.nodes.len() + SPARE_FILES);
    let opened = endpoint(config, (placing.one_host, placing.here.len() > 1), reads);
    let addresses = agree(exchange, opened.as_ref().map(ofi::Unconnected::address))?;
    check_addresses(&addresses, placing)?;
    let rank = exchange.rank();
    let provider = opened.as_ref().map(ofi::Unconnected::provider).unwrap_or_default();
    let wire = opened.as_ref().ok().and_then(ofi::Unconnected::wire_mbit_s);
    let transport = opened.and_then(|unconnected| unconnected.connect(rank, &addresses));
    let own = [wire.unwrap_or(0), socket as u64].map(u64::to_le_bytes).concat();
    let said = agree(exchange, transport.as_ref().map(|_| own))?;
    let word = |place: usize| {
        let words = said.iter().map(move |said| said.as_chunks().0.get(place).copied().map_or(0, u64::from_le_bytes));
        words.collect::<Vec<u64>>()
    };
    let wire_mbit_s = word(0).into_iter().filter(|&mbit_s| mbit_s > 0).min();
    let sockets = word(1).into_iter().map(|socket| usize::try_from(socket).unwrap_or(0)).collect();
    Ok(Connected { transport: transport?, provider, wire_mbit_s, sockets })
}

/// Refuses an address that ranks of different hosts have in common: each would find only itself there.
fn check_addresses(addresses: &[Vec<u8>], placing: &Placing) -> Result<()> {
    let mut first = HashMap::new();
    for (rank, address) in addresses.iter().enumerate() {
        let Some(ip) = ofi::ip_of_address(address) else { continue };
        let before = *first.entry(ip).or_insert(rank);
        if placing.networks[before] != placing.networks[rank] {
            let [one, other] = [before, rank].map(|rank| &placing.names[rank]);
            return Err(Error::startup(format!(
                "{one} and {other} are on different hosts and have the same address {ip}: name a network that joins \
                 the hosts (HAN_INTERFACE)"
            )));
        }
    }
    Ok(())
}

/// Opens an endpoint for a job, all of whose ranks are on one host or not, some others of them on this one or not; `reads` as of
/// [`ofi::Config`].
pub(crate) fn endpoint(
    config: &Config,
    (one_host, in_company): (bool, bool),
    reads: u32,
) -> net_fabric::Result<ofi::Unconnected> {
    static FORKS_ARE_SEEN: OnceLock<bool> = OnceLock::new();
    // If the system refuses, a child that outlives this rank keeps the others from noticing its death.
    FORKS_ARE_SEEN.get_or_init(|| shm_core::sys::fork::in_children(ofi::leave_to_parent));
    let reach = if one_host { ofi::Reach::Host } else { ofi::Reach::Network };
    let (providers, interface) = (config.providers.clone(), config.interface.clone());
    let neighbours = one_host || in_company;
    ofi::open(&ofi::Config { providers, interface, reach, neighbours, reads, ..Default::default() })
}

/// Everybody's bytes, or the first rank's error.
fn agree(exchange: &mut dyn Exchange, own: std::result::Result<Vec<u8>, &net_fabric::Error>) -> Result<Vec<Vec<u8>>> {
    const FINE: u8 = 0;
    const FAILED: u8 = 1;
    let word = match own {
        Ok(bytes) => [&[FINE], &bytes[..]].concat(),
        Err(error) => [&[FAILED], error.to_string().as_bytes()].concat(),
    };
    let words = exchange.allgather(&word).map_err(Error::startup)?;
    let of_rank = |(rank, word): (usize, Vec<u8>)| match word.split_first() {
        Some((&FINE, bytes)) => Ok(bytes.to_vec()),
        Some((&FAILED, why)) => {
            Err(Error::startup(format!("rank {rank} has no network: {}", String::from_utf8_lossy(why))))
        }
        _ => Err(Error::startup(format!("rank {rank} says nothing of its network: another build of han?"))),
    };
    words.into_iter().enumerate().map(of_rank).collect()
}

/// An error of the node of rank `own` as the ranks of other nodes are told of it.
fn as_of_network(error: &shm_core::Error, own: usize) -> net_fabric::Error {
    use net_fabric::Error as Net;
    use shm_core::Error as Node;
    match error.clone() {
        Node::PeerDied { rank, .. } => Net::Unreachable { rank, reason: "it died without finalizing".to_owned() },
        Node::Lost { rank, why } => Net::Unreachable { rank, reason: why },
        Node::Mismatch(text) => Net::Mismatch(text),
        Node::Timeout(text) => Net::Timeout(text),
        Node::Aborted { rank, why, .. } => Net::Aborted { rank, why },
        other => Net::Aborted { rank: own, why: other.to_string() },
    }
}

impl Network {
    /// What ends the network ends the node's job, and the other way round: the error then reaches every rank.
    pub(crate) fn note(&self, error: &Error, job: &Job) {
        match error {
            Error::Network(net_fabric::Error::InvalidArgument(_) | net_fabric::Error::Nested)
            | Error::Node(shm_core::Error::InvalidArgument(_)) => {}
            Error::Network(error) => {
                let mut failure = self.failure.borrow_mut();
                if failure.is_none() {
                    *failure = Some(error.clone());
                    job.announce(&self.as_of_node(error));
                    self.spread();
                }
            }
            Error::Node(error) if self.failure.borrow().is_none() => {
                let is_told = matches!(error, shm_core::Error::Lost { .. });
                if self.link.end_with(as_of_network(error, self.link.rank()), is_told) {
                    self.spread();
                }
            }
            _ => {}
        }
    }

    /// Gives the others a moment to hear of an error, once.
    fn spread(&self) {
        if !self.has_spread.replace(true) {
            self.link.spread();
        }
    }

    /// An error of the network as the ranks of this node are told of it.
    pub(crate) fn as_of_node(&self, error: &net_fabric::Error) -> shm_core::Error {
        use net_fabric::Error as Net;
        use shm_core::Error as Node;
        let aborted = |rank: usize, why| {
            let pid = self.placing.pids.get(rank).copied().unwrap_or_default();
            Node::Aborted { rank, pid, why }
        };
        match error.clone() {
            Net::Unreachable { rank, reason } => Node::Lost { rank, why: reason },
            Net::Mismatch(text) => Node::Mismatch(text),
            Net::Timeout(text) => Node::Timeout(text),
            Net::Aborted { rank, why } => aborted(rank, why),
            length @ Net::Length { .. } => Node::Mismatch(length.to_string()),
            other => aborted(self.link.rank(), other.to_string()),
        }
    }

    /// Where the ranks `world` are, for trees that follow it.
    pub(crate) fn topology(&self, world: &[usize]) -> Topology {
        let [nodes, sockets] = [&self.placing.nodes, &self.sockets]
            .map(|level| world.iter().map(|&rank| level[rank]).collect::<Vec<usize>>());
        Topology::new(&[&nodes, &sockets])
    }

    /// Why nothing works any more, if the network is behind it.
    pub(crate) fn failure(&self) -> Option<net_fabric::Error> {
        self.failure.borrow().clone()
    }

    /// Several lines on the nodes and what connects them.
    pub(crate) fn describe(&self, job: &Job, config: &Config) -> String {
        let Placing { nodes, here, .. } = &self.placing;
        let (near, far): (Vec<_>, Vec<_>) =
            self.link.sent().into_iter().enumerate().partition(|(rank, _)| here.contains(rank));
        let [near, far] = [near, far].map(|sent| sent.iter().map(|(_, messages)| messages).sum::<u64>());
        format!(
            "nodes: {} with {} ranks; this rank is one of {} on node {}, of which {} on its socket\n\
             network: {}\n\
             wire: {}\n\
             messages so far: {far} to other nodes, {near} to ranks of this node\n\
             memory of the node: {}, {}\n\
             settings: {}\n\
             tuning: {}\n",
            self.placing.node_count(),
            nodes.len(),
            here.len(),
            nodes[here[0]],
            here.iter().filter(|&&rank| self.sockets[rank] == self.sockets[self.link.rank()]).count(),
            self.link.describe(),
            self.wire_mbit_s.map_or_else(
                || "the system does not say what it carries".to_owned(),
                |mbit_s| format!("{mbit_s} Mbit/s, by what the systems say")
            ),
            job.backing(),
            job.methods(),
            config.agreed(),
            config.tuning.as_ref().map_or_else(|| "built-in rules".to_owned(), |source| source.describe()),
        )
    }
}
