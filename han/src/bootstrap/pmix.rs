//! Start-up under a launcher that speaks PMIx: an exchange is a value of each rank's, a fence that
//! brings all values, and another when all are read.
#![allow(unsafe_code)] // vouches for the exchange

use pmix_client::Client;
use shm_core::exchange::{Exchange, ExchangeError};

use super::error::{Error, Result};
use super::patience::Patience;

/// A rank of a PMIx job.
#[derive(Debug)]
pub(super) struct Pmix {
    client: Client,
    nodes: Option<Vec<usize>>,
    /// Number of exchanges so far; part of every key, so that no value is read twice.
    generation: u64,
    patience: Patience,
}

/// Begins every value: some versions of libpmix lose what comes after an empty one.
const PRESENT: u8 = b'.';

impl Pmix {
    /// Joins the job that this process was started in.
    ///
    /// # Errors
    /// [`Error::Pmix`]: libpmix is not there, or the launcher has gone. [`Error::Waited`]: ranks have not come.
    pub(super) fn connect(patience: Patience) -> Result<Self> {
        let mut joined = Self { client: Client::connect()?, nodes: None, generation: 0, patience };
        // Launchers tell of other ranks' nodes by various keys, and Slurm not all of it; so each rank tells of its own.
        let own = joined.client.node()?.unwrap_or_default();
        let names = joined.gather(own.as_bytes())?;
        joined.nodes = numbered(&names);
        Ok(joined)
    }

    fn gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let key = format!("han-{}", self.generation);
        self.generation += 1;
        self.client.put(&key, &[&[PRESENT], bytes].concat())?;
        self.fence()?;
        let mut all = Vec::with_capacity(self.client.size());
        for rank in 0..self.client.size() {
            let mut value = self.client.fetch(rank, &key)?;
            all.push(value.split_off(value.len().min(1)));
        }
        // A value that is not here yet is fetched from its rank's node, and waited for in vain if that rank has left
        // (Open MPI 5): so none leaves before all have read.
        self.fence()?;
        Ok(all)
    }

    fn fence(&mut self) -> Result<()> {
        let (rank, size) = (self.client.rank(), self.client.size());
        let mut wait = self.patience.wait(move |seconds| {
            format!(
                "rank {rank} has waited {seconds:.1} s at the start for the other ranks of {size}; under PMIx one that has ended \
                 without a word, or does not use han, is waited for"
            )
        });
        self.client.fence::<Error>(|elapsed| wait.look(elapsed))
    }
}

/// The nodes of the ranks by their names; `None` if one has none.
fn numbered(names: &[Vec<u8>]) -> Option<Vec<usize>> {
    if names.iter().any(Vec::is_empty) {
        return None;
    }
    names.iter().map(|name| names.iter().position(|first| first == name)).collect()
}

// SAFETY: rank, size and values are the launcher's, which is the one of this job. A value is asked for by its rank, with the
// number of the exchange as its key, when all ranks have met in the fence behind it.
unsafe impl Exchange for Pmix {
    fn rank(&self) -> usize {
        self.client.rank()
    }

    fn size(&self) -> usize {
        self.client.size()
    }

    fn allgather(&mut self, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, ExchangeError> {
        Ok(self.gather(bytes)?)
    }

    fn nodes(&self) -> Option<Vec<usize>> {
        self.nodes.clone()
    }

    fn finalize(&mut self) -> std::result::Result<(), ExchangeError> {
        Ok(self.client.finalize()?)
    }

    fn abort(&mut self, code: i32, why: &str) {
        self.client.abort(code, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_on_one_node_if_it_has_one_name() {
        let names = |names: &[&str]| numbered(&names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(names(&["b", "a", "b", "c"]), Some(vec![0, 1, 0, 3]));
        assert_eq!(names(&["b", "", "b"]), None);
    }
}
