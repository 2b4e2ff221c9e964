//! When the node-aware allreduce is taken, and how the ranks of a pair exchange.

use net_fabric::Plan;
use net_fabric::algorithm::Algorithm;
use reduce_kernels::Collective;

use super::form::{NodesForm, OverNodes};
use super::{Inter, NetworkQuestion, Selection, choose};

/// Whether it is set where both levels are used, and if so why it cannot be taken, if it cannot.
pub(super) fn is_set(over: &OverNodes<'_>, inter: &Inter, form: NodesForm) -> Option<Result<(), &'static str>> {
    let is_set = over.collective == Collective::Allreduce
        && form == NodesForm::Hierarchical
        && over.layout.nodes() > 1
        && inter.algorithm_of(over.collective) == Some(Algorithm::Nap);
    let can = || match over.layout.has_pairs() {
        true => Ok(()),
        false => Err("a node has one rank alone, which cannot exchange with several other nodes at once"),
    };
    is_set.then(can)
}

/// `inter` without it.
pub(super) fn without(inter: &Inter) -> Inter {
    let other = |set: Option<Algorithm>| set.filter(|&set| set != Algorithm::Nap);
    Inter { algorithm: other(inter.algorithm), algorithms: inter.algorithms.map(other), ..*inter }
}

/// How the pairs exchange what `question`, of an allreduce, is about, with the reasons: each message is a broadcast to one rank.
pub(super) fn selection(question: NetworkQuestion<'_>, inter: &Inter) -> Selection {
    let chunk_bytes = inter.chunk_bytes_of(question.collective);
    let of_pairs = Inter { chunk_bytes, chunks_bytes: Default::default(), ..without(inter) };
    let of_pairs = Inter { algorithm: None, algorithms: Default::default(), ..of_pairs };
    let mut selection = choose(&NetworkQuestion { collective: Collective::Bcast, ranks: 2, ..question }, &of_pairs);
    if let [algorithm, chunk_bytes, ..] = selection.points.as_mut_slice() {
        algorithm.value = Algorithm::Nap.to_string();
        "the setting says so".clone_into(&mut algorithm.because);
        inter.key_for("inter_chunk_bytes", question.collective).clone_into(&mut chunk_bytes.change);
    }
    selection
}

/// How it is shown.
pub(super) fn shown(pairs: Plan) -> Plan {
    Plan { algorithm: Algorithm::Nap, ..pairs }
}

#[cfg(test)]
mod tests {
    use super::super::form;
    use super::*;
    use crate::task::{Across, Layout};

    fn choice(nodes: &[usize], inter: &Inter, commutative: bool) -> form::Choice {
        let layout = Layout::new(nodes);
        let topology = net_fabric::algorithm::Topology::new(&[nodes]);
        let over = OverNodes {
            collective: Collective::Allreduce,
            count: 1,
            element_bytes: 8,
            commutative,
            reproducible: false,
            root: 0,
            shares_cores: true,
            wire_mbit_s: None,
            layout: &layout,
            topology: Some(&topology),
        };
        form::choose(&over, inter)
    }

    fn algorithm(choice: &form::Choice) -> String {
        let point = choice.points.iter().find(|point| point.what == "algorithm");
        point.map_or(String::new(), |point| format!("{}: {}", point.value, point.because))
    }

    #[test]
    fn what_is_set_is_taken_where_ranks_have_pairs() {
        let set = Inter { algorithm: Some(Algorithm::Nap), ..Inter::default() };
        let layouts = [&[0, 0, 1, 1, 2, 2][..], &[0, 0, 0, 1, 1, 2, 2]];
        for (nodes, commutative) in layouts.into_iter().flat_map(|nodes| [(nodes, true), (nodes, false)]) {
            let taken = choice(nodes, &set, commutative);
            assert_eq!((taken.to_string().as_str(), taken.shape.across), ("nodes/nap", Across::NodeAware));
            assert_eq!(algorithm(&taken), "nap: the setting says so");
            assert!(taken.points.iter().all(|point| point.what != "leaders"));
        }
        let flat = Inter { form: Some(NodesForm::Flat), ..set };
        assert_eq!(choice(&[0, 0, 1, 1], &flat, true).to_string(), "net/nap");
        assert_eq!(choice(&[0, 1, 2], &set, true).to_string(), "net/nap");
    }

    #[test]
    fn where_it_cannot_be_taken_the_reason_is_told() {
        let set = Inter { algorithms: [None, None, Some(Algorithm::Nap)], ..Inter::default() };
        let alone = choice(&[0, 1, 1, 1], &set, true);
        assert_eq!((alone.to_string().as_str(), alone.shape.across), ("nodes/recursive-doubling", Across::Whole));
        assert!(algorithm(&alone).contains("(nap is set, but a node has one rank alone"), "{alone:?}");
        // Ranks that are not numbered node by node: the partial results of nodes would not be in order.
        let unordered = choice(&[0, 1, 0, 1], &set, false);
        assert_eq!(unordered.form, NodesForm::Flat);
        assert!(
            algorithm(&unordered).contains("nap is set, but operands would not meet in rank order"),
            "{unordered:?}"
        );
    }
}
