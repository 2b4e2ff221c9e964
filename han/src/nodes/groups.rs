//! The groups of a communicator over several nodes: each an engine's communicator.

use std::rc::Rc;

use net_fabric::{Announced, FabricComm, Link};
use shm_core::exchange::Exchange;
use shm_core::job::Job;
use shm_core::{Call, LocalComm, Signature, Ticket};

use super::kept::Prepared;
use crate::error::{Error, Result};
use crate::task::{Layout, Stream};

/// Numbers for messages that a communicator of ranks on the nodes `node_of` takes, from its id on: one for all ranks, and
/// two for each rail, or for all of them if no rank is on two.
pub(crate) fn numbers(node_of: &[usize]) -> u32 {
    let layout = Layout::new(node_of);
    let rails = if layout.is_even() { 1 } else { layout.rails() };
    if layout.nodes() == 1 { 1 } else { 1 + 2 * u32::try_from(rails).unwrap_or(0) }
}

/// What the ranks of a node make together.
#[derive(Debug)]
pub(crate) struct OfNode {
    up: LocalComm,
    down: LocalComm,
}

impl OfNode {
    /// Collective over `exchange`, whose ranks are `ranks` in the job; nothing for a rank that is alone.
    pub(crate) fn together(
        exchange: &mut dyn Exchange,
        job: &Rc<Job>,
        id: u32,
        ranks: &[usize],
    ) -> shm_core::Result<Option<Self>> {
        if ranks.len() < 2 {
            return Ok(None);
        }
        let up = LocalComm::together(exchange, Rc::clone(job), id, ranks.to_vec())?;
        let down = LocalComm::together(exchange, Rc::clone(job), id, ranks.to_vec())?;
        Ok(Some(Self { up, down }))
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
}

impl Groups {
    pub(super) fn new(flat: FabricComm, layout: &Layout, of_node: Option<OfNode>) -> Result<Self> {
        let rank = flat.rank();
        let (node, local) = (layout.node_of(rank), layout.local_of(rank));
        let rails = if layout.rails() == 1 { 0 } else { layout.rails() };
        let rail = |rail: usize| -> Result<Option<Rail>> {
            if layout.leader(node, rail) != local {
                return Ok(None);
            }
            let world: Vec<usize> = layout.rail(rail).into_iter().map(|rank| flat.world()[rank]).collect();
            // Rails without a common rank can have the same numbers.
            let place = if layout.is_even() { 0 } else { u32::try_from(rail).unwrap_or(0) };
            let group = |offset: u32| {
                let number = Link::number_of(flat.id().wrapping_add(1 + 2 * place + offset));
                FabricComm::new(Rc::clone(flat.link()), flat.id(), number, world.clone(), None)
            };
            Ok(Some(Rail { out: group(0)?, back: group(1)? }))
        };
        let rails = (0..rails).map(rail).collect::<Result<_>>()?;
        Ok(Self { flat, of_node, rails })
    }

    pub(super) fn has_levels(&self) -> bool {
        !self.rails.is_empty()
    }

    /// The communicator of a stream of this node, or of the network.
    #[inline]
    pub(super) fn local(&mut self, stream: Stream) -> Option<&mut LocalComm> {
        let of_node = self.of_node.as_mut()?;
        match stream {
            Stream::Up => Some(&mut of_node.up),
            Stream::Down => Some(&mut of_node.down),
            Stream::Rail(_) | Stream::Back(_) => None,
        }
    }

    /// The communicator of a stream on a rail.
    pub(super) fn rail(&mut self, stream: Stream) -> Option<&mut FabricComm> {
        match stream {
            Stream::Rail(rail) => Some(&mut self.rails[rail].as_mut()?.out),
            Stream::Back(rail) => Some(&mut self.rails[rail].as_mut()?.back),
            Stream::Up | Stream::Down => None,
        }
    }

    /// Both groups of this node.
    pub(super) fn locals(&mut self) -> [Option<&mut LocalComm>; 2] {
        match &mut self.of_node {
            Some(OfNode { up, down }) => [Some(up), Some(down)],
            None => [None, None],
        }
    }

    /// Tells the ranks of this node what is called, in both groups, as they may wait for each other in different ones; those
    /// of other nodes hear of it with every message.
    #[inline]
    pub(super) fn announce(&mut self, signature: Signature) -> Result<Announced> {
        let announced = self.flat.announce(signature)?;
        self.locals().into_iter().flatten().for_each(|local| local.announce(signature));
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
            return Ok(local.start(call)?);
        }
        let plan = prepared.inter(stream);
        self.rail(stream).map_or_else(|| Err(misplaced()), |rail| Ok(rail.start(part_of, call, plan)?))
    }

    /// Ends what is under way in any of them, and drops its calls.
    pub(super) fn give_up(&mut self, why: &str) {
        self.flat.give_up(why);
        for rail in self.rails.iter_mut().flatten() {
            rail.out.give_up(why);
            rail.back.give_up(why);
        }
        self.locals().into_iter().flatten().for_each(|local| local.give_up(why));
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
