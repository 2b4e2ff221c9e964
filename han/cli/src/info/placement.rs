//! Ranks on a machine, this one or a described one: their groups, leaders, and the tree below any root.

mod drawing;

use std::io::Write;
use std::path::PathBuf;

use han::files::read_text;
use serde::Serialize;
use shm_core::job::MAX_RANKS;
use shm_core::sys::affinity;
use shm_core::topo::{Hierarchy, Level, Place, Processor, Shape, Topology, Tree};

use crate::output::stdout;
use crate::tables;

use super::{Result, ranges_text};

#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Groups of ranks and the tree below a root (shown if one of these is given)")]
pub(super) struct Args {
    /// On a described machine: how many of what, from the outermost to the innermost, as "pack:2 l3:4 core:8"
    #[arg(long, value_name = "DESCRIPTION")]
    synthetic: Option<String>,
    /// On the machine in a file that `lstopo machine.xml` wrote
    #[arg(long, value_name = "FILE", conflicts_with = "synthetic")]
    xml: Option<PathBuf>,
    /// Number of ranks [default: one per core]
    #[arg(short = 'n', value_name = "RANKS")]
    ranks: Option<usize>,
    /// Processors to which ranks are bound, one after the other, as 0-2,8,40 [default: a core each]
    #[arg(long, value_name = "LIST")]
    cores: Option<String>,
    /// Root of the tree [default: 0]
    #[arg(long, value_name = "RANK")]
    root: Option<usize>,
    /// Form of the tree within groups: flat, chain, binomial or radix8; or by level, as l3=flat,socket=chain
    /// [default: flat]
    #[arg(long, value_name = "SHAPE")]
    shape: Option<Shapes>,
}

/// The form of the tree at each level.
#[derive(Clone)]
struct Shapes([Shape; Level::ALL.len()]);

impl Shapes {
    fn of(&self, level: Level) -> Shape {
        let index = Level::ALL.iter().position(|&known| known == level);
        index.map_or(Shape::Flat, |index| self.0[index])
    }
}

impl std::str::FromStr for Shapes {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut shapes = [Shape::Flat; Level::ALL.len()];
        let named = |name: &str| {
            let shape = Shape::ALL.into_iter().find(|shape| shape.name() == name);
            shape.ok_or_else(|| format!("{name:?} is no shape: expected flat, chain, binomial or radix8"))
        };
        let mut levels = Vec::new();
        for (place, word) in text.split(',').map(str::trim).enumerate() {
            match word.split_once('=') {
                None if place > 0 => return Err(format!("{word:?} is for all levels: it comes first, and once")),
                None => shapes = [named(word)?; Level::ALL.len()],
                Some((level, _)) if levels.contains(&level) => return Err(format!("{level:?} comes twice")),
                Some((level, shape)) => {
                    levels.push(level);
                    let index = Level::ALL.iter().position(|known| known.name() == level).ok_or_else(|| {
                        format!("{level:?} is no level: expected one of {}", Level::ALL.map(Level::name).join(", "))
                    })?;
                    shapes[index] = named(shape)?;
                }
            }
        }
        Ok(Self(shapes))
    }
}

impl Args {
    /// True if the tree is asked for.
    pub(super) fn given(&self) -> bool {
        let Self { synthetic, xml, ranks, cores, root, shape } = self;
        synthetic.is_some() || xml.is_some() || ranks.is_some() || cores.is_some() || root.is_some() || shape.is_some()
    }

    /// Prints groups and tree.
    pub(super) fn show(&self, json: bool) -> Result<()> {
        let (machine, topology) = self.machine()?;
        let ranks = match (&self.cores, self.ranks) {
            (Some(list), ranks) => Ranks::bound(&topology, &parse_list(list)?, ranks)?,
            // As `han run` binds them.
            (None, ranks) => Ranks::bound(&topology, &topology.one_per_core(), ranks)?,
        };
        let (root, size) = (self.root.unwrap_or(0), ranks.hierarchy.size());
        if root >= size {
            return Err(format!("--root {root}: there are {size} ranks, 0 to {}", size - 1).into());
        }
        let shapes = self.shape.clone().unwrap_or(Shapes([Shape::Flat; Level::ALL.len()]));
        let tree = ranks.hierarchy.tree(root, |level| shapes.of(level));
        if json {
            let report = Report::of(machine, &ranks, &tree, &shapes);
            return Ok(writeln!(stdout(), "{}", serde_json::to_string(&report)?)?);
        }
        ranks.print(&mut stdout(), &machine, &tree)
    }

    /// The machine's name and what it is made of.
    fn machine(&self) -> Result<(String, Topology)> {
        if let Some(description) = &self.synthetic {
            return Ok((description.clone(), Topology::synthetic(description)?));
        }
        if let Some(file) = &self.xml {
            let name = file.display().to_string();
            let xml = read_text(file).map_err(|error| format!("{name}: {error}"))?;
            let topology = Topology::from_xml(&xml).map_err(|error| format!("{name}: {error}"))?;
            return Ok((name, topology));
        }
        let topology = Topology::of_this_machine()?.restricted_to(&affinity::allowed_cores()?);
        Ok((super::machine(), topology))
    }
}

/// Ranks that are bound to one processor each.
pub(super) struct Ranks {
    processors: Vec<usize>,
    hierarchy: Hierarchy,
}

impl Ranks {
    /// As many ranks as `count` on `processors`, again from the first where those do not suffice; one
    /// for each if `None`, or one per core if these are all there are.
    pub(super) fn bound(topology: &Topology, processors: &[usize], count: Option<usize>) -> Result<Self> {
        let everywhere = processors.len() == topology.processors().len();
        let default = if everywhere { topology.cores() } else { processors.len() };
        let count = count.unwrap_or(default.min(MAX_RANKS));
        if !(1..=MAX_RANKS).contains(&count) || processors.is_empty() {
            return Err(format!("{count} ranks: a node has 1 to {MAX_RANKS}").into());
        }
        let processors: Vec<usize> = processors.iter().copied().cycle().take(count).collect();
        let place = |processor: &usize| {
            Place::of(topology, &[*processor]).map_err(|_| {
                let mut known: Vec<_> = topology.processors().iter().map(Processor::number).collect();
                known.sort_unstable();
                format!("the machine has no processor {processor}: it has {}", ranges_text(&known))
            })
        };
        let places: std::result::Result<_, String> = processors.iter().map(place).collect();
        Ok(Self { hierarchy: Hierarchy::new(places?), processors })
    }

    pub(super) fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Links of `tree` at each level.
    fn messages(&self, tree: &Tree) -> Vec<(Level, usize)> {
        let ups = (0..tree.size()).filter_map(|rank| Some((rank, tree.parent(rank)?)));
        let levels: Vec<Level> = ups.map(|(rank, parent)| self.hierarchy.distance(rank, parent)).collect();
        let count = |level| levels.iter().filter(|&&here| here == level).count();
        self.hierarchy.tiers().iter().map(|tier| (tier.level, count(tier.level))).collect()
    }

    fn print(&self, out: &mut impl Write, machine: &str, tree: &Tree) -> Result<()> {
        let size = self.hierarchy.size();
        writeln!(out, "{machine}: ranks 0 to {} on processors {}\n", size - 1, ranges_text(&self.processors))?;
        let mut table = tables::plain(["level", "leader", "group"]);
        for tier in self.hierarchy.tiers() {
            let (together, alone): (Vec<_>, Vec<_>) = tier.groups.iter().partition(|group| group.members().len() > 1);
            for group in together {
                let leader = group.leader().to_string();
                table.add_row([tier.level.name(), &leader, &ranges_text(group.members())]);
            }
            if !alone.is_empty() {
                let alone: Vec<usize> = alone.iter().map(|group| group.leader()).collect();
                table.add_row([tier.level.name(), "alone", &ranges_text(&alone)]);
            }
        }
        writeln!(out, "{table}\n")?;
        let messages = self.messages(tree).into_iter().map(|(level, count)| format!("{level} {count}"));
        let messages = messages.collect::<Vec<_>>().join(", ");
        writeln!(out, "Tree below root {}, depth {}; messages: {messages}\n", tree.root(), tree.depth())?;
        Ok(drawing::draw(out, &self.hierarchy, tree)?)
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    machine: String,
    ranks: usize,
    processors: Vec<usize>,
    levels: Vec<LevelReport>,
    root: usize,
    depth: usize,
    tree: Vec<RankReport>,
}

#[derive(Serialize)]
struct LevelReport {
    level: &'static str,
    shape: &'static str,
    messages: usize,
    groups: Vec<GroupReport>,
}

#[derive(Serialize)]
struct GroupReport {
    leader: usize,
    members: Vec<usize>,
}

#[derive(Serialize)]
struct RankReport {
    rank: usize,
    parent: Option<usize>,
    children: Vec<usize>,
}

impl Report {
    fn of(machine: String, ranks: &Ranks, tree: &Tree, shapes: &Shapes) -> Self {
        let group =
            |group: &shm_core::topo::Group| GroupReport { leader: group.leader(), members: group.members().to_vec() };
        let tiers = ranks.hierarchy.tiers().iter().zip(ranks.messages(tree));
        let level = |(tier, (_, messages)): (&shm_core::topo::Tier, _)| LevelReport {
            level: tier.level.name(),
            shape: shapes.of(tier.level).name(),
            messages,
            groups: tier.groups.iter().map(group).collect(),
        };
        let rank = |rank| RankReport { rank, parent: tree.parent(rank), children: tree.children(rank).to_vec() };
        Self {
            machine,
            ranks: tree.size(),
            processors: ranks.processors.clone(),
            levels: tiers.map(level).collect(),
            root: tree.root(),
            depth: tree.depth(),
            tree: (0..tree.size()).map(rank).collect(),
        }
    }
}

/// `0-2,8,40` as numbers, in the order given.
fn parse_list(text: &str) -> std::result::Result<Vec<usize>, String> {
    let wrong = || format!("--cores {text}: expected numbers and ranges of processors, as 0-2,8,40");
    let mut numbers = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if first > last || last - first >= MAX_RANKS {
            return Err(wrong());
        }
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_keep_their_order() {
        assert_eq!(parse_list("8, 0-2,40").unwrap(), [8, 0, 1, 2, 40]);
        for wrong in ["", "1,", "2-1", "a", "0-99999999999", "-3", "1--2"] {
            assert!(parse_list(wrong).unwrap_err().contains("0-2,8,40"), "{wrong}");
        }
    }

    #[test]
    fn shapes_are_for_all_levels_or_for_one() {
        let shapes: Shapes = "chain,l3=flat, node=binomial".parse().unwrap();
        let expected = [Shape::Chain, Shape::Flat, Shape::Chain, Shape::Chain, Shape::Binomial];
        assert_eq!(Level::ALL.map(|level| shapes.of(level)), expected);
        assert!("ring".parse::<Shapes>().err().unwrap().contains("flat, chain, binomial or radix8"));
        assert!("l3=flat,l3=chain".parse::<Shapes>().err().unwrap().contains("\"l3\" comes twice"));
        assert!("l3=flat,chain".parse::<Shapes>().err().unwrap().contains("it comes first"));
        assert!("l4=flat".parse::<Shapes>().err().unwrap().contains("core, l3, numa, socket, node"));
    }
}
