//! What brings ranks together: the MPI's own allgather on the program's communicator.
#![allow(unsafe_code)] // Calls the MPI library.

use std::collections::HashMap;
use std::ffi::c_int;

use han::Exchange;
use han::bootstrap::OutOfBand;
use shm_core::job::{host_name, node_identity};

use crate::abi::Word;
use crate::deputy;
use crate::real::{SUCCESS, real};

/// The ranks of an MPI communicator; the numbers by which messages call them are those of `MPI_COMM_WORLD`.
pub(crate) struct Members {
    exchange: Box<dyn Exchange>,
    world: Vec<usize>,
    nodes: Option<Vec<usize>>,
}

impl Members {
    /// Those of `comm`, this rank being `rank` among them; `world` has their ranks in `MPI_COMM_WORLD`.
    pub(crate) fn new(comm: Word, byte: Word, rank: usize, world: Vec<usize>) -> Result<Self, String> {
        let gather = move |send: &[u8], recv: &mut [u8]| {
            let bytes = c_int::try_from(send.len())?;
            let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
            // SAFETY: `send` has the bytes of a block and `recv` room for one of each rank.
            let gather = || unsafe { (real().allgather)(from, bytes, byte, to, bytes, byte, comm) };
            match deputy::during_outside(gather) {
                SUCCESS => Ok(()),
                code => Err(format!("MPI_Allgather returned error {code}").into()),
            }
        };
        // SAFETY: `comm` has these ranks, and this is the MPI's allgather on it.
        let exchange = unsafe { OutOfBand::new(rank, world.len(), gather) }.map_err(|e| e.to_string())?;
        Ok(Self { exchange: Box::new(exchange), world, nodes: None })
    }

    /// Finds out which ranks are on one node: where machine, process numbers and host name are the same. MPI launchers
    /// tell nodes by their names, so what is two nodes to them is two here.
    pub(crate) fn find_nodes(&mut self) -> Result<(), String> {
        // A rank that does not know says nothing, lest the others wait for it.
        let own = node_identity().map(|identity| format!("{} {identity}", host_name()));
        let word = own.as_deref().unwrap_or_default();
        let names = self.exchange.allgather(word.as_bytes()).map_err(|e| e.to_string())?;
        own.map_err(|error| error.to_string())?;
        self.nodes = Some(first_places(&names));
        Ok(())
    }
}

/// The place of the first of those that have the same name, for each.
fn first_places(names: &[Vec<u8>]) -> Vec<usize> {
    let mut first = HashMap::new();
    names.iter().enumerate().map(|(place, name)| *first.entry(name).or_insert(place)).collect()
}

// SAFETY: the numbers of a communicator's ranks, and an exchange that keeps the contract.
unsafe impl Exchange for Members {
    fn rank(&self) -> usize {
        self.exchange.rank()
    }

    fn size(&self) -> usize {
        self.world.len()
    }

    fn number(&self, rank: usize) -> usize {
        self.world[rank]
    }

    fn nodes(&self) -> Option<Vec<usize>> {
        self.nodes.clone()
    }

    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error + Send + Sync>> {
        self.exchange.allgather(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many that one comparison of each with all would take minutes.
    #[test]
    fn nodes_are_called_by_their_first_ranks() {
        let (ranks, each) = (400_000, 100);
        let names: Vec<Vec<u8>> = (0..ranks).map(|rank| format!("node {:06}", rank / each).into_bytes()).collect();
        assert!(first_places(&names).into_iter().eq((0..ranks).map(|rank| rank / each * each)));
        let names = ["b", "a", "b", "c", "a"].map(|name| name.as_bytes().to_vec());
        assert_eq!(first_places(&names), [0, 1, 0, 3, 1]);
    }
}
