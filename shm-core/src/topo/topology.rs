//! The machine: every processor with its path from the socket down to the core.

use std::collections::{BTreeMap, BTreeSet};

use super::{Level, synthetic};
use crate::error::{Error, Result};
use crate::sys::hwloc::{Kind, Object, Source, objects};

/// What a path is made of, the outermost first.
const PATH: [Kind; 4] = [Kind::Socket, Kind::Numa, Kind::Cache(3), Kind::Core];
/// As a number in the text of a path: there is no such object.
const MISSING: &str = "-";

/// The processors of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// In the order of their paths: neighbours side by side.
    processors: Vec<Processor>,
}

/// What the kernel schedules on: a core, or a hardware thread of one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Processor {
    /// Numbers of its socket, NUMA node, L3 and core, where the machine has them. What has the same
    /// number has the same numbers before it.
    path: [Option<u16>; 4],
    /// The kernel's number.
    number: usize,
}

impl Processor {
    /// The kernel's number of it.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }
}

impl Topology {
    /// Asks hwloc for this machine.
    ///
    /// Takes a few milliseconds, so one rank of a job asks for all.
    ///
    /// # Errors
    /// hwloc's call that failed.
    pub fn of_this_machine() -> Result<Self> {
        Self::load(Source::ThisMachine)
    }

    /// A machine from hwloc's synthetic description: how many of what, from the outermost to the
    /// innermost, for instance `pack:2 l3:4 core:8`. Without `pu:N` at its end a core has one processor.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the description, and shows a right one.
    pub fn synthetic(description: &str) -> Result<Self> {
        let normalized = synthetic::normalized(description).map_err(Error::InvalidArgument)?;
        Self::load(Source::Synthetic(&normalized)).map_err(|_| Error::InvalidArgument(synthetic::refused(description)))
    }

    /// A machine from hwloc's XML, as `lstopo machine.xml` writes it.
    ///
    /// # Errors
    /// hwloc's call that failed.
    pub fn from_xml(xml: &str) -> Result<Self> {
        Self::load(Source::Xml(xml))
    }

    /// Checks a synthetic description without building its machine.
    pub(crate) fn check_synthetic(description: &str) -> std::result::Result<(), String> {
        synthetic::normalized(description).map(|_| ())
    }

    fn load(source: Source<'_>) -> Result<Self> {
        let kinds: Vec<Kind> = PATH.into_iter().chain([Kind::Processor]).collect();
        Ok(Self::of(&objects(source, &kinds)?))
    }

    fn of(objects: &[Object]) -> Self {
        let all = |kind| objects.iter().filter(move |object| object.kind == kind);
        let cores = all(Kind::Core).count();
        // The smallest object counts: memory of another kind may lie near to a whole socket.
        let holder = |kind, number: &usize| {
            let holding = all(kind).enumerate().filter(|(_, object)| object.processors.binary_search(number).is_ok());
            holding.min_by_key(|(_, object)| object.processors.len()).map(|(index, _)| index)
        };
        let processors = all(Kind::Processor).enumerate().map(|(index, processor)| {
            let mut path = PATH.map(|kind| holder(kind, &processor.number));
            // Where cores are unknown each processor is one.
            path[3].get_or_insert(cores + index);
            Processor { path: path.map(|index| index.and_then(|i| u16::try_from(i).ok())), number: processor.number }
        });
        let mut processors: Vec<_> = processors.collect();
        leave_out_what_spans(&mut processors);
        Self::sorted(processors)
    }

    fn sorted(mut processors: Vec<Processor>) -> Self {
        processors.sort();
        Self { processors }
    }

    /// What is left of the machine if only processors with these numbers are there.
    #[must_use]
    pub fn restricted_to(mut self, numbers: &[usize]) -> Self {
        self.processors.retain(|processor| numbers.contains(&processor.number));
        self
    }

    /// The processors, neighbours side by side.
    #[must_use]
    pub fn processors(&self) -> &[Processor] {
        &self.processors
    }

    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.processors.chunk_by(|one, next| one.path == next.path).count()
    }

    /// The numbers of the processors on which ranks are bound if each gets a core, as long as there are
    /// cores: first processor of every core, then the second ones, and so on.
    #[must_use]
    pub fn one_per_core(&self) -> Vec<usize> {
        let cores: Vec<_> = self.processors.chunk_by(|one, next| one.path == next.path).collect();
        let threads = cores.iter().map(|core| core.len()).max().unwrap_or_default();
        let layer = |thread: usize| cores.iter().filter_map(move |core| core.get(thread));
        (0..threads).flat_map(layer).map(Processor::number).collect()
    }

    /// `numbers` in the order in which ranks are bound to them: as [`one_per_core`](Self::one_per_core) of these, then what
    /// is not known.
    fn binding_order(self, numbers: &[usize]) -> Vec<usize> {
        let mut order = self.restricted_to(numbers).one_per_core();
        let unknown: Vec<usize> = numbers.iter().copied().filter(|number| !order.contains(number)).collect();
        order.extend(unknown);
        order
    }

    /// Path of the processor with this number.
    pub(super) fn path(&self, number: usize) -> Option<&[Option<u16>]> {
        self.processors.iter().find(|processor| processor.number == number).map(|processor| &processor.path[..])
    }

    /// How many there are of `level` that lie within one object of each outer level, and 1 of the node.
    #[must_use]
    pub fn count(&self, level: Level) -> usize {
        let Some(depth) = Level::PATH.iter().position(|&known| known == level) else { return 1 };
        let there = self.processors.iter().filter(|processor| processor.path[depth].is_some());
        let mut paths: Vec<_> = there.map(|processor| &processor.path[..=depth]).collect();
        paths.dedup();
        paths.len()
    }

    /// One line for [`from_text`](Self::from_text) of another process.
    #[must_use]
    pub fn to_text(&self) -> String {
        let number = |index: Option<u16>| index.map_or_else(|| MISSING.to_owned(), |index| index.to_string());
        let text = |processor: &Processor| format!("{}:{}", processor.number, processor.path.map(number).join("."));
        self.processors.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    /// What [`to_text`](Self::to_text) of another process told; `None` if it did not.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let entry = |entry: &str| if entry == MISSING { Some(None) } else { entry.parse().ok().map(Some) };
        let processor = |word: &str| {
            let (number, path) = word.split_once(':')?;
            let path: Option<Vec<_>> = path.split('.').map(entry).collect();
            Some(Processor { number: number.parse().ok()?, path: path?.try_into().ok()? })
        };
        text.split_whitespace().map(processor).collect::<Option<_>>().map(Self::sorted)
    }
}

/// Processors of this machine in the order in which ranks are bound to them: the first one of every core, then the second
/// ones, and so on; as they come where hwloc does not know the machine.
#[must_use]
pub fn binding_order(numbers: Vec<usize>) -> Vec<usize> {
    match Topology::of_this_machine() {
        Ok(topology) => topology.binding_order(&numbers),
        Err(_) => numbers,
    }
}

/// Takes objects out of the paths that span several of an outer level, so that levels are nested: a
/// NUMA node of several sockets, or a cache of several NUMA nodes, brings nobody nearer than those.
fn leave_out_what_spans(processors: &mut [Processor]) {
    for depth in 1..PATH.len() {
        let mut holders = BTreeMap::new();
        let mut spanning = BTreeSet::new();
        for processor in processors.iter() {
            let outer = &processor.path[..depth];
            if *holders.entry(processor.path[depth]).or_insert_with(|| outer.to_vec()) != outer {
                spanning.insert(processor.path[depth]);
            }
        }
        for processor in processors.iter_mut().filter(|processor| spanning.contains(&processor.path[depth])) {
            processor.path[depth] = None;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn counts(topology: &Topology) -> [usize; 5] {
        Level::ALL.map(|level| topology.count(level))
    }

    #[test]
    fn a_synthetic_machine_has_what_its_description_says() {
        let topology = Topology::synthetic("pack:2 l3:4 core:8").unwrap();
        assert_eq!(counts(&topology), [64, 8, 0, 2, 1]);
        assert_eq!((topology.cores(), topology.processors().len()), (64, 64));
        let threads = Topology::synthetic("pack:2 numa:2 l3:2 core:2 pu:2").unwrap();
        assert_eq!(counts(&threads), [16, 8, 4, 2, 1]);
        assert_eq!((threads.cores(), threads.processors().len()), (16, 32));
        assert_eq!(threads.one_per_core()[14..20], [28, 30, 1, 3, 5, 7]);
        let plain = Topology::synthetic("pu:3").unwrap();
        assert_eq!((counts(&plain), plain.one_per_core()), ([3, 0, 1, 0, 1], vec![0, 1, 2]));
        let clusters = Topology::synthetic("pack:2 l3:1 numa:2 core:2").unwrap();
        assert_eq!(counts(&clusters), [8, 0, 4, 2, 1]);
    }

    #[test]
    fn the_kernels_numbers_may_come_in_any_order() {
        let topology = Topology::synthetic("pack:2 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)").unwrap();
        let numbers: Vec<_> = topology.processors().iter().map(Processor::number).collect();
        assert_eq!(numbers, [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(topology.one_per_core(), [0, 2, 1, 3, 4, 6, 5, 7]);
    }

    #[test]
    fn ranks_are_bound_to_other_cores_before_other_threads_of_a_core() {
        let siblings_adjacent = || Topology::synthetic("pack:1 core:4 pu:2").unwrap();
        assert_eq!(siblings_adjacent().binding_order(&[0, 1, 2, 3, 4, 5, 6, 7]), [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(siblings_adjacent().binding_order(&[1, 2, 3, 6]), [1, 2, 6, 3]);
        assert_eq!(siblings_adjacent().binding_order(&[0, 1, 2, 9]), [0, 2, 1, 9]);
        let mut here: Vec<_> = crate::sys::affinity::allowed_cores().unwrap();
        let mut order = binding_order(here.clone());
        order.sort_unstable();
        here.sort_unstable();
        assert_eq!(order, here);
    }

    #[test]
    fn less_of_a_machine_is_irregular() {
        let topology = Topology::synthetic("pack:2 l3:2 core:4").unwrap().restricted_to(&[0, 1, 2, 4, 15]);
        assert_eq!(counts(&topology), [5, 3, 0, 2, 1]);
        assert_eq!(topology.one_per_core(), [0, 1, 2, 4, 15]);
    }

    #[test]
    fn wrong_descriptions_are_answered_with_a_right_one() {
        for description in ["core:2 core:2", "pack:x", "", "numa:2(nonsense=x"] {
            let error = Topology::synthetic(description).unwrap_err().to_string();
            assert!(error.contains("pack:2 l3:4 core:8") && error.contains(description), "{error}");
        }
    }

    #[test]
    fn this_machine_has_cores_for_its_processors() {
        let topology = Topology::of_this_machine().unwrap();
        assert!(topology.cores() > 0 && topology.cores() <= topology.processors().len());
        assert_eq!(Topology::from_text(&topology.to_text()), Some(topology));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["0", "0:", "0:1.2.3", "0:1.2.3.4.5", "x:1.2.3.4", "0:1.2.3.-1", "0:1.2.3.65536"] {
            assert_eq!(Topology::from_text(text), None, "{text}");
        }
    }

    #[cfg(not(sanitized))]
    proptest::proptest! {
        #[test]
        fn machines_survive_their_text(
            description in "(pack:[1-3] )?(numa:[1-3] )?(l3:[1-3] )?(core:[1-3] )?pu:[1-2]",
            kept in proptest::collection::vec(0_usize..108, 0..108),
        ) {
            let topology = Topology::synthetic(&description).unwrap().restricted_to(&kept);
            proptest::prop_assert_eq!(Topology::from_text(&topology.to_text()), Some(topology));
        }
    }
}
