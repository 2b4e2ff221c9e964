//! Symbolic values: which operands a byte is made of, and how they were combined.

use std::collections::HashMap;
use std::ops::Range;

/// The name of a value: below the number of ranks an operand, else a combination. Two values with one name were
/// computed by the same operations in the same order, so they are the same bits on every rank.
pub(super) type Value = u32;

/// All values of a world.
pub(super) struct Values {
    ranks: u32,
    commutative: bool,
    combined: Vec<Operands>,
    names: HashMap<(Value, Value), Value>,
}

/// The ranks whose operands a value contains, each once: ranges in ascending order that do not touch.
type Operands = Vec<Range<u32>>;

impl Values {
    pub(super) fn new(ranks: usize, commutative: bool) -> Self {
        let ranks = u32::try_from(ranks).expect("fewer than 2^32 ranks");
        Self { ranks, commutative, combined: Vec::new(), names: HashMap::new() }
    }

    /// `left op right`.
    pub(super) fn combine(&mut self, left: Value, right: Value) -> Result<Value, String> {
        if let Some(&known) = self.names.get(&(left, right)) {
            return Ok(known);
        }
        let (lower, upper) = (self.operands(left), self.operands(right));
        if !self.commutative && (lower.len() != 1 || upper.len() != 1 || lower[0].end != upper[0].start) {
            return Err(format!("ranks {} and then {} are not in rank order", show(&lower), show(&upper)));
        }
        let operands = union(&lower, &upper)
            .ok_or_else(|| format!("ranks {} are combined with {}: one of them twice", show(&lower), show(&upper)))?;
        let name = self.ranks + u32::try_from(self.combined.len()).expect("fewer than 2^32 values");
        self.combined.push(operands);
        self.names.insert((left, right), name);
        Ok(name)
    }

    /// Whether a value has the operands of all ranks.
    pub(super) fn is_complete(&self, value: Value) -> bool {
        matches!(&self.operands(value)[..], [all] if *all == (0..self.ranks))
    }

    /// The operands of a value in words.
    pub(super) fn describe(&self, value: Value) -> String {
        show(&self.operands(value))
    }

    fn operands(&self, value: Value) -> Operands {
        match value.checked_sub(self.ranks) {
            None => std::iter::once(value..value + 1).collect(),
            Some(index) => self.combined[index as usize].clone(),
        }
    }
}

/// Both together; nothing if they have a rank in common.
fn union(a: &[Range<u32>], b: &[Range<u32>]) -> Option<Operands> {
    let mut all: Operands = a.iter().chain(b).cloned().collect();
    all.sort_unstable_by_key(|range| range.start);
    let mut merged: Operands = Vec::with_capacity(all.len());
    for range in all {
        match merged.last_mut() {
            Some(last) if last.end > range.start => return None,
            Some(last) if last.end == range.start => last.end = range.end,
            _ => merged.push(range),
        }
    }
    Some(merged)
}

fn show(operands: &[Range<u32>]) -> String {
    let ranges = operands.iter().map(|range| match range.len() {
        1 => range.start.to_string(),
        _ => format!("{}-{}", range.start, range.end - 1),
    });
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_operations_have_one_name_and_others_have_another() {
        let mut values = Values::new(4, true);
        let [a, b] = [(0, 1), (2, 3)].map(|(left, right)| values.combine(left, right).expect("apart"));
        assert_eq!(values.combine(0, 1), Ok(a));
        assert_ne!(values.combine(1, 0), Ok(a));
        let all = values.combine(b, a).expect("apart");
        assert!(values.is_complete(all) && !values.is_complete(a));
        assert!(values.combine(all, 2).is_err_and(|reason| reason.contains("twice")));
    }

    #[test]
    fn rank_order_is_kept_where_it_must_be() {
        let mut values = Values::new(4, false);
        let middle = values.combine(1, 2).expect("in order");
        assert!(values.combine(middle, 0).is_err() && values.combine(0, 2).is_err());
        let lower = values.combine(0, middle).expect("in order");
        assert_eq!(values.describe(lower), "0-2");
    }
}
