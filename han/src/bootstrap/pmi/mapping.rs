//! `PMI_process_mapping`: which rank runs on which node, as blocks.
//!
//! `(vector,(F,N,P),...)` reads: N nodes from node F on take P consecutive ranks each; when the blocks
//! are used up before the ranks are, they start again.

use crate::bootstrap::error::{Error, Result};

/// The key under which launchers publish the mapping.
pub const KEY: &str = "PMI_process_mapping";

/// More nodes than any job has; a larger number is a broken or hostile launcher.
const MAX_NODES: usize = 1 << 24;

/// Writes the mapping of nodes 0, 1, ... that hold `ranks[0]`, `ranks[1]`, ... consecutive ranks.
#[must_use]
pub fn format(ranks: &[usize]) -> String {
    let mut text = String::from("(vector");
    let mut first = 0;
    for run in ranks.chunk_by(|a, b| a == b) {
        text.push_str(&format!(",({first},{},{})", run.len(), run[0]));
        first += run.len();
    }
    text.push(')');
    text
}

/// The node of each of `size` ranks. One rank is on one node, whatever the text: Hydra of MPICH 4.2 gives it `(vector,0)`.
///
/// # Errors
/// [`Error::Protocol`] when the text is not a mapping, places no rank, or names an absurd node.
pub fn parse(text: &str, size: usize) -> Result<Vec<usize>> {
    let refuse = || Error::Protocol(format!("{KEY}={text:?} is not of the form (vector,(0,NODES,RANKS),...)"));
    if size == 1 {
        return Ok(vec![0]);
    }
    let mut rest = text.strip_prefix("(vector").and_then(|rest| rest.strip_suffix(')')).ok_or_else(refuse)?;
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let (block, tail) = rest.strip_prefix(",(").and_then(|rest| rest.split_once(')')).ok_or_else(refuse)?;
        blocks.push(parse_block(block).ok_or_else(refuse)?);
        rest = tail;
    }
    if !blocks.iter().any(|&(_, nodes, ranks)| nodes > 0 && ranks > 0) {
        return Err(refuse());
    }
    let slots = blocks.iter().cycle().flat_map(|&(first, nodes, ranks)| {
        (first..first + nodes).flat_map(move |node| std::iter::repeat_n(node, ranks))
    });
    Ok(slots.take(size).collect())
}

fn parse_block(block: &str) -> Option<(usize, usize, usize)> {
    let mut numbers = block.split(',').map(|number| number.parse::<usize>().ok());
    let block = (numbers.next()??, numbers.next()??, numbers.next()??);
    let sane = block.0 <= MAX_NODES && block.1 <= MAX_NODES && numbers.next().is_none();
    // A block without ranks would only be walked over; dropping its nodes keeps that walk short.
    sane.then_some(if block.2 == 0 { (block.0, 0, 0) } else { block })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_repeats_and_unequal_nodes() {
        assert_eq!(parse("(vector,(0,1,1))", 4).unwrap(), [0, 0, 0, 0]);
        assert_eq!(parse("(vector,(0,2,1))", 4).unwrap(), [0, 1, 0, 1]);
        assert_eq!(parse("(vector,(0,2,2))", 4).unwrap(), [0, 0, 1, 1]);
        assert_eq!(parse("(vector,(0,1,3),(1,1,2))", 5).unwrap(), [0, 0, 0, 1, 1]);
        assert_eq!(parse("(vector,(1,1,2),(0,1,1))", 7).unwrap(), [1, 1, 0, 1, 1, 0, 1]);
        assert_eq!(parse("(vector,(0,3,0),(5,1,1))", 2).unwrap(), [5, 5]);
    }

    #[test]
    fn what_is_not_a_mapping_is_refused() {
        let bad = [
            "",
            "(vector)",
            "(vector,0)",
            "vector,(0,1,1)",
            "(vector,(0,1,1)",
            "(vector,0,1,1)",
            "(vector,(0,1))",
            "(vector,(0,1,1,1))",
            "(vector,(0,1,-1))",
            "(vector,(0,0,1))",
            "(vector,(0,1,0))",
            "(vector,(0,1,1)x)",
            "(vector,(99999999,1,1))",
            "(vector,(0,18446744073709551615,1))",
            "(matrix,(0,1,1))",
            "(vector,(0,1,1)),",
        ];
        for text in bad {
            assert!(parse(text, 4).is_err(), "{text:?}");
            assert_eq!(parse(text, 1).unwrap(), [0], "{text:?}");
        }
    }

    #[test]
    fn equal_neighbours_share_a_block() {
        assert_eq!(format(&[4]), "(vector,(0,1,4))");
        assert_eq!(format(&[2, 2, 2]), "(vector,(0,3,2))");
        assert_eq!(format(&[3, 3, 2, 2]), "(vector,(0,2,3),(2,2,2))");
    }

    proptest! {
        #[test]
        fn what_was_formatted_is_read_back(ranks in prop::collection::vec(1_usize..9, 1..20)) {
            let nodes: Vec<usize> =
                ranks.iter().enumerate().flat_map(|(node, ranks)| std::iter::repeat_n(node, *ranks)).collect();
            prop_assert_eq!(parse(&format(&ranks), nodes.len()).unwrap(), nodes);
        }

        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in "\\(vector(,\\([0-9]{0,9},[0-9]{0,9},[0-9]{0,9}\\)){0,4}\\)?") {
            if let Ok(nodes) = parse(&text, 64) {
                prop_assert_eq!(nodes.len(), 64);
            }
        }
    }
}
