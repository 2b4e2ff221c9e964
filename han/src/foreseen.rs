//! What a job over several nodes would decide by, found out before there is one: for `han explain --nodes`.
//!
//! Each answer comes from the function by which a job finds its own, so that both choose the same.

mod in_memory;

use net_fabric::algorithm::Topology;
use reduce_kernels::{Collective, Datatype};
use shm_core::job::Load;
use shm_core::settings::Settings;
use shm_core::sys::affinity;

use crate::config::Config;
use crate::error::Result;
use crate::network;
use crate::select::form::{Choice, OverNodes};
use crate::select::{Point, tuned};
use crate::task::Layout;
pub use in_memory::InMemory;
pub use shm_core::{Explanation, Question};

/// A job that `han run` would start on this machine, which plays all nodes.
#[derive(Debug, Clone)]
pub struct Foreseen {
    config: Config,
    layout: Layout,
    topology: Topology,
    shares_cores: bool,
    /// Those that this process may use: ranks are bound to one after the other.
    cores: usize,
    /// What the ranks of each node go by.
    of_node: Settings,
    wire_mbit_s: Option<u64>,
    provider: Option<String>,
    /// What was found of cores and network.
    points: Vec<Point>,
}

impl Foreseen {
    /// A job of so many ranks on so many nodes, in blocks as `han run` makes them. The nodes have this process's network in
    /// common; or `is_apart`, and it has that of one of them. An endpoint is opened, as every rank does: where that fails
    /// nothing is known of the network.
    ///
    /// # Errors
    /// This process's cores cannot be read, or a field of `config` has a value that its variable or key does not take.
    pub fn here((ranks, nodes): (usize, usize), is_apart: bool, config: Config) -> Result<Self> {
        config.check()?;
        let ranks_of = |node: usize| ranks / nodes + usize::from(node < ranks % nodes);
        let places: Vec<usize> = (0..nodes).flat_map(|node| std::iter::repeat_n(node, ranks_of(node))).collect();
        let cores = affinity::allowed_cores()?;
        let quota = affinity::cgroup_quota();
        let crowded = Load::new(std::iter::repeat_n(&cores, ranks), quota).is_crowded();
        let shares_cores = network::shares_cores(config.settings.assume_own_cores, crowded);
        let because = match config.settings.assume_own_cores {
            Some(_) => "the setting says so".to_owned(),
            None => {
                let quota = quota.map_or(String::new(), |quota| format!(" (control group allows {quota:.2})"));
                format!("this machine plays all nodes: {ranks} ranks, {} cores{quota}", cores.len())
            }
        };
        let value = if shares_cores { "shared" } else { "own" };
        let mut points = vec![Point::new("core", value, because, "assume_own_cores")];
        let endpoint = network::endpoint(&config, (!is_apart, ranks > nodes), 1);
        let (value, because) = match &endpoint {
            Ok(endpoint) => {
                let said = endpoint.describe();
                let (which, why) = said.split_once(": ").unwrap_or((said, "the best that can be opened"));
                (which.to_owned(), why.to_owned())
            }
            Err(error) => ("not known".to_owned(), error.to_string()),
        };
        points.push(Point::new("network", value, because, "HAN_PROVIDER"));
        let endpoint = endpoint.ok();
        Ok(Self {
            of_node: network::of_node(&config.settings, crowded),
            config,
            layout: Layout::new(&places),
            topology: Topology::new(&[&places]),
            shares_cores,
            cores: cores.len(),
            wire_mbit_s: endpoint.as_ref().and_then(|endpoint| endpoint.wire_mbit_s()).filter(|&mbit_s| mbit_s > 0),
            provider: endpoint.map(|endpoint| endpoint.provider()),
            points,
        })
    }

    /// The same job with `key=value,...` set beside what is set between nodes.
    ///
    /// # Errors
    /// As [`Config::set_all`].
    pub fn with(&self, set: &str) -> Result<Self> {
        let mut config = self.config.clone();
        config.set_all(set)?;
        Ok(Self { config, ..self.clone() })
    }

    /// Which rank is where.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What is chosen for a vector of `bytes`, rounded up to whole elements, and an operator that commutes or does not, with
    /// the reasons.
    #[must_use]
    pub fn explain(
        &self,
        collective: Collective,
        bytes: usize,
        datatype: Datatype,
        commutative: bool,
        root: usize,
    ) -> Choice {
        let element_bytes = datatype.size();
        let over = OverNodes {
            collective,
            count: bytes.div_ceil(element_bytes),
            element_bytes,
            commutative,
            reproducible: self.config.settings.reproducible,
            root,
            shares_cores: self.shares_cores,
            wire_mbit_s: self.wire_mbit_s,
            layout: &self.layout,
            topology: Some(&self.topology),
        };
        let Config { inter, tuning, .. } = &self.config;
        let mut choice = tuned::choose(&over, inter, tuning.as_deref(), self.provider.as_deref());
        choice.points.extend(self.points.iter().cloned());
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::NodesForm;

    #[test]
    fn a_described_machine_does_not_change_what_nodes_decide_by() {
        let explain = |set: &[&str]| {
            let mut config = Config::default();
            set.iter().for_each(|pair| assert_eq!(config.set_all(pair).map_err(|error| error.to_string()), Ok(())));
            let foreseen = Foreseen::here((4096, 4), false, config).map_err(|error| error.to_string());
            foreseen.map(|foreseen| foreseen.explain(Collective::Allreduce, 8, Datatype::Double, true, 0))
        };
        let core = |choice: &Choice| {
            let core = choice.points.iter().find(|point| point.what == "core");
            core.map(|core| core.value.clone()).unwrap_or_default()
        };
        let plain = explain(&[]).expect("there are cores");
        let described = explain(&["topology=pack:2 core:4"]).expect("there are cores");
        assert_eq!((plain.form, core(&plain).as_str()), (NodesForm::Hierarchical, "shared"));
        assert_eq!((core(&described).as_str(), described.inter), ("shared", plain.inter));
        assert_eq!(core(&explain(&["assume_own_cores=1"]).expect("there are cores")), "own");
    }
}
