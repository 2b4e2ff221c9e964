//! The groups of a communicator over several nodes: each an engine's communicator.

use std::rc::Rc;

use net_fabric::{Announced, FabricComm, Link};
use shm_core::exchange::Exchange;
use shm_core::job::Job;
use shm_core::{Call, LocalComm, Signature, Ticket};

use super::kept::Prepared;
use crate::error::{Error, Result};
use crate::parts::in_part;
use crate::task::{Layout, Stream};

/// Successive numbers for messages that a communicator of ranks on the nodes `node_of` takes: one for all ranks, two for
/// all rails that have no rank in common, and one for each step in which ranks are in pairs.
pub(crate) fn numbers(node_of: &[usize]) -> u32 {
    let layout = Layout::new(node_of);
    let of_pairs = u32::try_from(layout.most_exchanges()).unwrap_or(0);
    if layout.nodes() == 1 { 1 } else { before_pairs(&layout) + of_pairs }
}

fn before_pairs(layout: &Layout) -> u32 {
    1 + 2 * u32::try_from(layout.colors()).unwrap_or(0)
}

/// What the ranks of a node make together.
#[derive(Debug)]
pub(crate) struct OfNode {
    /// All of them towards leaders, then from leaders, then so many first ones of them.
    comms: Vec<(Stream, LocalComm)>,
}

impl OfNode {
    /// Collective over `exchange`, whose ranks are `ranks` in the job, of a communicator of ranks on the nodes `node_of`;
    /// nothing for a rank that is alone.
    pub(crate) fn together(
        exchange: &mut dyn Exchange,
        job: &Rc<Job>,
        id: u32,
        ranks: &[usize],
        node_of: &[usize],
    ) -> shm_core::Result<Option<Self>> {
        if ranks.len() < 2 {
            return Ok(None);
        }
        let mut comms = Vec::new();
        for stream in [Stream::Up, Stream::Down] {
            comms.push((stream, LocalComm::together(exchange, Rc::clone(job), id, ranks.to_vec())?));
        }
        for parts in Layout::new(node_of).fewer_parts(ranks.len()) {
            // The others look on.
            let rank = exchange.rank();
            let own = [rank];
            let first: Vec<usize> = (0..parts).collect();
            let members = if rank < parts { &first[..] } else { &own[..] };
            let comm = in_part(exchange, members, |part| {
                let make = || LocalComm::together(part, Rc::clone(job), id, ranks[..parts].to_vec());
                (rank < parts).then(make).transpose()
            })?;
            comms.extend(comm.map(|comm| (Stream::First(parts), comm)));
        }
        Ok(Some(Self { comms }))
    }
}

/// The leaders on a rail.
#[derive(Debug)]
pub(super) struct Rail {
    pub(super) out: FabricComm,
    pub(super) back: FabricComm,
}

#[derive(Debug)]
pub(super) struct Groups {
    /// All ranks.
    pub(super) flat: FabricComm,
    /// The ranks of this node, if there are others.
    pub(super) of_node: Option<OfNode>,
    /// By number; `None` for those that this rank is not on.
    pub(super) rails: Vec<Option<Rail>>,
    /// By steps that follow; `None` for those in which this rank is in no pair.
    pairs: Vec<Option<FabricComm>>,
}

impl Groups {
    pub(super) fn new(flat: FabricComm, layout: &Layout, of_node: Option<OfNode>) -> Result<Self> {
        let rank = flat.rank();
        let (node, local) = (layout.node_of(rank), layout.local_of(rank));
        let rails = if layout.rails() == 1 { 0 } else { layout.rails() };
        let number = |place: u32| Link::number_of(u32::from(flat.number()) + place);
        let rail = |rail: usize| -> Result<Option<Rail>> {
            if layout.leader(node, rail) != local {
                return Ok(None);
            }
            let world: Vec<usize> = layout.rail(rail).into_iter().map(|rank| flat.world()[rank]).collect();
            // Rails without a common rank can have the same numbers.
            let color = u32::try_from(layout.color_of(rail)).unwrap_or(0);
            let group = |offset: u32| {
                FabricComm::new(Rc::clone(flat.link()), flat.id(), number(1 + 2 * color + offset), world.clone(), None)
            };
            Ok(Some(Rail { out: group(0)?, back: group(1)? }))
        };
        let rails = (0..rails).map(rail).collect::<Result<_>>()?;
        let first = before_pairs(layout);
        let pair = |later: usize| -> Result<Option<FabricComm>> {
            let Some(pair) = layout.pair(rank, later) else { return Ok(None) };
            let world = pair.map(|rank| flat.world()[rank]).to_vec();
            // A rank is in one pair of a step at most.
            let number = number(first + u32::try_from(later).unwrap_or(0));
            Ok(Some(FabricComm::new(Rc::clone(flat.link()), flat.id(), number, world, None)?))
        };
        let pairs = (0..layout.most_exchanges()).map(pair).collect::<Result<_>>()?;
        Ok(Self { flat, of_node, rails, pairs })
    }

    pub(super) fn has_levels(&self) -> bool {
        !self.rails.is_empty()
    }

    /// The communicator of a stream of this node, or of the network.
    #[inline]
    pub(super) fn local(&mut self, stream: Stream) -> Option<&mut LocalComm> {
        let comms = &mut self.of_node.as_mut()?.comms;
        comms.iter_mut().find(|(of, _)| *of == stream).map(|(_, comm)| comm)
    }

    /// The same, with what tells whether an operation between nodes has completed by now.
    #[inline]
    pub(super) fn local_and_others(
        &mut self,
        stream: Stream,
    ) -> Option<(&mut LocalComm, impl FnMut(Stream, Ticket) -> bool)> {
        let Self { of_node, rails, pairs, .. } = self;
        let comms = &mut of_node.as_mut()?.comms;
        let (_, local) = comms.iter_mut().find(|(of, _)| *of == stream)?;
        let has_completed = move |stream: Stream, ticket: Ticket| {
            let Some(fabric) = between(rails, pairs, stream) else { return false };
            // What has failed whoever waits for it is told.
            fabric.note_completed().is_ok() && fabric.has_completed(ticket)
        };
        Some((local, has_completed))
    }

    /// The communicator of a stream between nodes.
    pub(super) fn between(&mut self, stream: Stream) -> Option<&mut FabricComm> {
        between(&mut self.rails, &mut self.pairs, stream)
    }

    /// The streams of this rank, in memory and between nodes.
    pub(super) fn streams(&self) -> impl Iterator<Item = Stream> {
        let in_memory = self.of_node.iter().flat_map(|of_node| &of_node.comms).map(|(stream, _)| *stream);
        let rails = self.rails.iter().enumerate().filter(|(_, rail)| rail.is_some());
        let rails = rails.flat_map(|(rail, _)| [Stream::Rail(rail), Stream::Back(rail)]);
        let pairs = self.pairs.iter().enumerate().filter(|(_, pair)| pair.is_some());
        in_memory.chain(rails).chain(pairs.map(|(later, _)| Stream::Pair(later)))
    }

    /// All groups of this node.
    pub(super) fn locals(&mut self) -> impl Iterator<Item = &mut LocalComm> {
        self.of_node.iter_mut().flat_map(|of_node| &mut of_node.comms).map(|(_, comm)| comm)
    }

    /// Tells the ranks of this node what is called, in all groups, as they may wait for each other in different ones; those
    /// of other nodes hear of it with every message.
    #[inline]
    pub(super) fn announce(&mut self, signature: Signature) -> Result<Announced> {
        let announced = self.flat.announce(signature)?;
        self.locals().for_each(|local| local.announce(signature));
        Ok(announced)
    }

    /// Begins the call of a task, which is a part of another one.
    pub(super) fn start(
        &mut self,
        part_of: Announced,
        stream: Stream,
        call: Call<'static>,
        prepared: &Prepared,
    ) -> Result<Ticket> {
        if let Some(local) = self.local(stream) {
            return Ok(local.start_part(call, part_of.number())?);
        }
        let plan = prepared.inter(stream);
        self.between(stream).map_or_else(|| Err(misplaced()), |group| Ok(group.start(part_of, call, plan)?))
    }

    /// Ends what is under way in any of them, and drops its calls.
    pub(super) fn give_up(&mut self, why: &str) {
        self.flat.give_up(why);
        for rail in self.rails.iter_mut().flatten() {
            rail.out.give_up(why);
            rail.back.give_up(why);
        }
        self.pairs.iter_mut().flatten().for_each(|pair| pair.give_up(why));
        self.locals().for_each(|local| local.give_up(why));
    }
}

fn between<'a>(
    rails: &'a mut [Option<Rail>],
    pairs: &'a mut [Option<FabricComm>],
    stream: Stream,
) -> Option<&'a mut FabricComm> {
    match stream {
        Stream::Rail(rail) => Some(&mut rails[rail].as_mut()?.out),
        Stream::Back(rail) => Some(&mut rails[rail].as_mut()?.back),
        Stream::Pair(later) => pairs[later].as_mut(),
        Stream::Up | Stream::Down | Stream::First(_) => None,
    }
}

/// A plan has a task for a group that this rank is not in.
#[cold]
pub(super) fn misplaced() -> Error {
    Error::Node(shm_core::Error::Aborted {
        rank: 0,
        pid: std::process::id(),
        why: "a task was planned for a group that its rank is not in".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_nearly_as_full_take_few_numbers() {
        let of = |sizes: &[usize]| {
            let nodes = sizes.iter().enumerate().flat_map(|(node, &ranks)| std::iter::repeat_n(node, ranks));
            before_pairs(&Layout::new(&nodes.collect::<Vec<_>>()))
        };
        assert_eq!([of(&[1, 1, 1]), of(&[64, 64]), of(&[64, 63]), of(&[8, 3, 8]), of(&[8, 1])], [3, 3, 5, 7, 17]);
    }
}
