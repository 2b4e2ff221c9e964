//! What brings ranks together: the MPI's own allgather on the program's communicator.
#![allow(unsafe_code)] // Calls the MPI library.

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
        let first = |name| names.iter().position(|other| other == name).unwrap_or(0);
        self.nodes = Some(names.iter().map(first).collect());
        Ok(())
    }
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
