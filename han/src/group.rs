//! Making communicators out of a communicator: its own collectives carry the exchange.
#![allow(unsafe_code)] // vouches for the exchange

use std::rc::Rc;

use net_fabric::engine::MAX_COMMUNICATORS;
use net_fabric::{FabricComm, Link};
use reduce_kernels::{Operator, Purpose};
use shm_core::exchange::{Exchange, ExchangeError};
use shm_core::{Call, LocalComm};

use crate::carrier::Carrier;
use crate::config::ChoosesBy;
use crate::context::Inner;
use crate::error::{Error, Result};
use crate::nodes::{self, Nodes, OfNode};
use crate::parts::in_part;

/// An exchange between all ranks of a communicator.
struct Within<'a> {
    parent: &'a mut Carrier,
    context: &'a Inner,
    purpose: Purpose,
}

impl Within<'_> {
    /// Everybody gives a slice of one long vector; bitwise or puts the slices together.
    fn gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (rank, size) = (self.parent.rank(), self.parent.size());
        let mut lengths = vec![0u64; size];
        lengths[rank] = bytes.len() as u64;
        self.combine(Call::allreduce_in_place(&mut lengths, Operator::Bor.into()))?;
        let longest = lengths.iter().max().map_or(0, |&longest| usize::try_from(longest).unwrap_or(0));
        let mut all = vec![0u8; longest * size];
        all[longest * rank..][..bytes.len()].copy_from_slice(bytes);
        self.combine(Call::allreduce_in_place(&mut all, Operator::Bor.into()))?;
        let length = |rank: usize| usize::try_from(lengths[rank]).unwrap_or(0);
        Ok((0..size).map(|rank| all[longest * rank..][..length(rank)].to_vec()).collect())
    }

    fn combine(&mut self, call: Call<'_>) -> Result<()> {
        self.parent.run(&call.made_for(self.purpose), self.context)
    }
}

impl Within<'_> {
    /// How many numbers a communicator of `members` takes.
    fn numbers(&self, members: &[usize]) -> u32 {
        nodes::numbers(&nodes_of(self, members, self.context))
    }
}

// SAFETY: a communicator's ranks are numbered, and its collectives bring each rank's slice of the vector to all of them, or
// fail; calls for another purpose, and those behind or ahead, are a mismatch.
unsafe impl Exchange for Within<'_> {
    fn rank(&self) -> usize {
        self.parent.rank()
    }

    fn size(&self) -> usize {
        self.parent.size()
    }

    fn number(&self, rank: usize) -> usize {
        match &*self.parent {
            Carrier::Node(local) => self.context.world_rank(local.world()[rank]),
            Carrier::Nodes(nodes) => nodes.flat().world()[rank],
        }
    }

    fn allgather(&mut self, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, ExchangeError> {
        Ok(self.gather(bytes)?)
    }
}

/// One rank's wish.
struct Wish {
    color: Option<u32>,
    key: i32,
    next_id: u32,
    chooses_by: ChoosesBy,
}

impl Wish {
    fn to_bytes(&self) -> Vec<u8> {
        let color = self.color.map_or(-1, i64::from);
        let numbers = [color.to_le_bytes().as_slice(), &self.key.to_le_bytes(), &self.next_id.to_le_bytes()].concat();
        [&numbers[..], self.chooses_by.to_text().as_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (color, rest) = bytes.split_first_chunk()?;
        let (key, next_id) = rest.split_first_chunk()?;
        let color = u32::try_from(i64::from_le_bytes(*color)).ok();
        let (next_id, rest) = next_id.split_first_chunk()?;
        let chooses_by = ChoosesBy::from_text(&String::from_utf8_lossy(rest))?;
        Some(Self { color, key: i32::from_le_bytes(*key), next_id: u32::from_le_bytes(*next_id), chooses_by })
    }
}

/// The part of `parent` that this rank's colour names; see `Communicator::split`, or `dup`, whichever is the purpose.
pub(crate) fn split(
    parent: &mut Carrier,
    color: Option<u32>,
    key: i32,
    purpose: Purpose,
    context: &Inner,
) -> Result<Option<Carrier>> {
    let mut within = Within { parent, context, purpose };
    let own = Wish { color, key, next_id: context.next_id.get(), chooses_by: context.config.chooses_by() };
    let wishes = within.gather(&own.to_bytes())?;
    let wishes: Vec<Wish> = wishes.iter().filter_map(|bytes| Wish::from_bytes(bytes)).collect();

    ChoosesBy::compare(wishes.iter().map(|wish| &wish.chooses_by))?;
    let mut colors: Vec<u32> = wishes.iter().filter_map(|wish| wish.color).collect();
    colors.sort_unstable();
    colors.dedup();
    let members = |color: u32| -> Vec<usize> {
        let mut members: Vec<usize> = (0..wishes.len()).filter(|&rank| wishes[rank].color == Some(color)).collect();
        members.sort_by_key(|&rank| (wishes[rank].key, rank));
        members
    };
    // Numbers that no rank has used, for all groups the same, as these have no rank in common; and an id for each group.
    let numbers = colors.iter().map(|&known| within.numbers(&members(known))).max().unwrap_or(0);
    let first_id = wishes.iter().map(|wish| wish.next_id).max().unwrap_or(0);
    let first_id = free_numbers(&mut within, first_id, numbers)?;
    let place = |color: u32| colors.iter().position(|&known| known == color);
    let ids = |groups: usize| u32::try_from(groups).unwrap_or(0);
    context.next_id.set(first_id.wrapping_add(numbers.max(ids(colors.len()))));
    let id = first_id.wrapping_add(ids(color.and_then(place).unwrap_or(0)));

    make(&mut within, &color.map(members).unwrap_or_default(), id, Link::number_of(first_id), context)
}

/// A communicator of all ranks of `exchange`, which has their numbers in the world; see `Context::communicator`.
pub(crate) fn together(exchange: &mut dyn Exchange, context: &Inner) -> Result<Carrier> {
    let members: Vec<usize> = (0..exchange.size()).collect();
    let numbers = nodes::numbers(&nodes_of(exchange, &members, context));
    let mut first_id = context.next_id.get();
    for _ in 0..MAX_COMMUNICATORS {
        // The first that no member has used, and then whether that is so still: an exchange may take as long as other
        // communicators that are being made.
        let words = gather(exchange, &first_id.to_le_bytes())?;
        let wished = words.iter().filter_map(|word| Some(u32::from_le_bytes(*word.first_chunk()?)));
        let agreed = wished.max().unwrap_or(first_id);
        let is_free = context.next_id.get() <= agreed && !has_numbers(agreed, numbers, context);
        if is_free {
            context.next_id.set(agreed.wrapping_add(numbers));
        }
        let words = gather(exchange, &[u8::from(is_free)])?;
        if words.iter().all(|word| word.first() == Some(&1)) {
            let made = make(exchange, &members, agreed, Link::number_of(agreed), context)?;
            return made.ok_or_else(Error::none_made);
        }
        first_id = context.next_id.get().max(agreed.wrapping_add(1));
    }
    Err(too_many(numbers))
}

/// Makes a communicator of `members` of `whole`, whose messages have numbers from `number` on; `None` if there are none.
/// Collective over `whole`, whose ranks may have other members.
fn make(whole: &mut dyn Exchange, members: &[usize], id: u32, number: u16, context: &Inner) -> Result<Option<Carrier>> {
    let world: Vec<usize> = members.iter().map(|&member| whole.number(member)).collect();
    let node_of = nodes_of(whole, members, context);
    let has_one_node = node_of.iter().all(|node| *node == node_of[0]);
    // Those on this node, and their ranks in the node's job.
    let here = |member: &usize| context.rank_on_node(whole.number(*member)).map(|on_node| (*member, on_node));
    let (here, on_node): (Vec<usize>, Vec<usize>) = members.iter().filter_map(here).unzip();
    let job = Rc::clone(&context.job);
    let part = in_part(whole, &here, |part| match (members, has_one_node) {
        ([], _) => Ok(None),
        (_, true) => LocalComm::together(part, job, id, on_node).map(|local| Some(Made::Node(local))),
        (_, false) => OfNode::together(part, &job, id, &on_node, &node_of).map(|made| Some(Made::OfNode(made))),
    })?;
    match (part, &context.network) {
        (Some(Made::Node(local)), _) => Ok(Some(Carrier::Node(local))),
        (Some(Made::OfNode(of_node)), Some(network)) => {
            let topology = Some(network.topology(&world));
            let flat = FabricComm::new(Rc::clone(&network.link), id, number, world, topology)?;
            Ok(Some(Carrier::Nodes(Nodes::new(flat, &node_of, of_node)?)))
        }
        _ => Ok(None),
    }
}

/// The nodes of `members`.
fn nodes_of(whole: &dyn Exchange, members: &[usize], context: &Inner) -> Vec<usize> {
    let node = |member: &usize| context.network.as_ref().map_or(0, |net| net.placing.nodes[whole.number(*member)]);
    members.iter().map(node).collect()
}

fn gather(exchange: &mut dyn Exchange, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    exchange.allgather(bytes).map_err(Error::startup)
}

/// What the ranks of a node have made for a new communicator.
#[allow(clippy::large_enum_variant)] // moved once
enum Made {
    /// It has no others.
    Node(LocalComm),
    /// Others are elsewhere.
    OfNode(Option<OfNode>),
}

/// The first of `numbers` successive ids, not before `from`, whose numbers for messages no rank's communicators have.
fn free_numbers(within: &mut Within<'_>, from: u32, numbers: u32) -> Result<u32> {
    if within.context.network.is_none() || matches!(within.parent, Carrier::Node(_)) {
        return Ok(from);
    }
    // The next few are free, as a rule; else all say which they have.
    let mut taken = [u8::from(has_numbers(from, numbers, within.context))];
    within.combine(Call::allreduce_in_place(&mut taken, Operator::Max.into()))?;
    if taken[0] == 0 {
        return Ok(from);
    }
    let mut taken: Vec<u8> =
        (0..MAX_COMMUNICATORS).map(|id| u8::from(has_numbers(id.into(), 1, within.context))).collect();
    within.combine(Call::allreduce_in_place(&mut taken, Operator::Max.into()))?;
    let is_free = |id: u32| taken[usize::from(Link::number_of(id))] == 0;
    let firsts = (0..u32::from(MAX_COMMUNICATORS)).map(|step| from.wrapping_add(step));
    let mut fitting = firsts.filter(|&first| (0..numbers).all(|place| is_free(first.wrapping_add(place))));
    fitting.next().ok_or_else(|| too_many(numbers))
}

/// No `numbers` successive ones are left.
fn too_many(numbers: u32) -> Error {
    let text = format!(
        "too many communicators over nodes: messages have {MAX_COMMUNICATORS} numbers for them, and no {numbers} in a row \
         are left; free some"
    );
    Error::Node(shm_core::Error::InvalidArgument(text))
}

/// Whether a communicator of this rank has one of the numbers for messages of `numbers` successive ids from `first` on.
fn has_numbers(first: u32, numbers: u32, context: &Inner) -> bool {
    let Some(network) = &context.network else { return false };
    (0..numbers).any(|place| network.link.has_number(Link::number_of(first.wrapping_add(place))))
}
