//! Making communicators out of a communicator: its own collectives carry the exchange.

use std::cell::Cell;
use std::rc::Rc;

use reduce_kernels::Operator;
use shm_core::exchange::{Exchange, ExchangeError};
use shm_core::{Call, LocalComm};

/// An exchange between all ranks of a communicator, of which `members` count.
struct Within<'a> {
    parent: &'a mut LocalComm,
    idle: &'a mut dyn FnMut() -> shm_core::Result<()>,
    members: Vec<usize>,
}

impl Within<'_> {
    /// Everybody gives a slice of one long vector; bitwise or puts the slices together.
    fn gather_all(&mut self, bytes: &[u8]) -> shm_core::Result<Vec<Vec<u8>>> {
        let (rank, size) = (self.parent.rank(), self.parent.size());
        let mut lengths = vec![0u64; size];
        lengths[rank] = bytes.len() as u64;
        self.parent.run(Call::allreduce_in_place(&mut lengths, Operator::Bor.into()), &mut *self.idle)?;
        let longest = lengths.iter().max().map_or(0, |&longest| usize::try_from(longest).unwrap_or(0));
        let mut all = vec![0u8; longest * size];
        all[longest * rank..][..bytes.len()].copy_from_slice(bytes);
        self.parent.run(Call::allreduce_in_place(&mut all, Operator::Bor.into()), &mut *self.idle)?;
        let length = |rank: usize| usize::try_from(lengths[rank]).unwrap_or(0);
        Ok((0..size).map(|rank| all[longest * rank..][..length(rank)].to_vec()).collect())
    }
}

impl Exchange for Within<'_> {
    fn rank(&self) -> usize {
        let own = self.parent.rank();
        self.members.iter().position(|&member| member == own).unwrap_or(0)
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let all = self.gather_all(bytes)?;
        Ok(self.members.iter().map(|&member| all[member].clone()).collect())
    }
}

/// One rank's wish.
struct Wish {
    color: Option<u32>,
    key: i32,
    next_id: u32,
}

impl Wish {
    fn to_bytes(&self) -> Vec<u8> {
        let color = self.color.map_or(-1, i64::from);
        [color.to_le_bytes().as_slice(), &self.key.to_le_bytes(), &self.next_id.to_le_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (color, rest) = bytes.split_first_chunk()?;
        let (key, next_id) = rest.split_first_chunk()?;
        let color = u32::try_from(i64::from_le_bytes(*color)).ok();
        Some(Self { color, key: i32::from_le_bytes(*key), next_id: u32::from_le_bytes(next_id.try_into().ok()?) })
    }
}

/// The part of `parent` that this rank's colour names; see `Communicator::split`.
pub(crate) fn split(
    parent: &mut LocalComm,
    color: Option<u32>,
    key: i32,
    next_id: &Cell<u32>,
    idle: &mut dyn FnMut() -> shm_core::Result<()>,
) -> shm_core::Result<Option<LocalComm>> {
    let (job, world) = (Rc::clone(parent.job()), parent.world().to_vec());
    let everybody = (0..parent.size()).collect();
    let mut within = Within { parent, idle, members: everybody };
    let own = Wish { color, key, next_id: next_id.get() };
    let wishes = within.gather_all(&own.to_bytes())?;
    let wishes: Vec<Wish> = wishes.iter().filter_map(|bytes| Wish::from_bytes(bytes)).collect();

    let mut colors: Vec<u32> = wishes.iter().filter_map(|wish| wish.color).collect();
    colors.sort_unstable();
    colors.dedup();
    // Numbers that no rank has used, one a group, so that messages tell the groups apart.
    let first_id = wishes.iter().map(|wish| wish.next_id).max().unwrap_or(0);
    next_id.set(first_id.wrapping_add(u32::try_from(colors.len()).unwrap_or(0)));

    let Some(color) = color else {
        // Making a segment takes two exchanges; who gets none takes part in them all the same.
        within.gather_all(b"")?;
        within.gather_all(b"")?;
        return Ok(None);
    };
    let mut members: Vec<usize> = (0..wishes.len()).filter(|&rank| wishes[rank].color == Some(color)).collect();
    members.sort_by_key(|&rank| (wishes[rank].key, rank));
    let ranks = members.iter().map(|&member| world[member]).collect();
    let group = colors.iter().position(|&known| known == color).unwrap_or(0);
    let id = first_id.wrapping_add(u32::try_from(group).unwrap_or(0));
    within.members = members;
    LocalComm::together(&mut within, job, id, ranks).map(Some)
}
