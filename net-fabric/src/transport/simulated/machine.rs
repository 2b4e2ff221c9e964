//! A machine as its cost models see it, read from TOML. `docs/models.md` has the formulas and the sources.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Seconds on the simulated clock.
pub type Seconds = f64;

/// How the time of a message follows from its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// `latency + bytes * byte time`.
    Postal,
    /// Latency, overhead of both processors, gap between messages and gap between bytes.
    Loggp,
    /// Postal, and the ranks of a node share what it can inject into the network.
    MaxRate,
}

impl Model {
    /// All models.
    pub const ALL: [Self; 3] = [Self::Postal, Self::Loggp, Self::MaxRate];

    /// Its name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Postal => "postal",
            Self::Loggp => "loggp",
            Self::MaxRate => "max-rate",
        }
    }
}

/// Start-up cost and byte time of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Start-up cost of a message (alpha).
    pub latency_s: Seconds,
    /// Cost of a byte (beta, 1 / `R_b`).
    pub byte_s: Seconds,
}

/// The parameters of LogGP.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogGp {
    /// L: from the last byte's departure to its arrival.
    pub latency_s: Seconds,
    /// o: what a message costs either processor.
    pub overhead_s: Seconds,
    /// g: from a message's last byte to the next message's first.
    pub gap_s: Seconds,
    /// G: between two bytes.
    pub byte_s: Seconds,
}

/// The costs between ranks of a certain distance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Messages that fit into an envelope.
    pub short: Line,
    /// Messages that are sent before a receive is known.
    pub eager: Line,
    /// Messages that wait for their receive.
    pub rendezvous: Line,
    /// What the model LogGP takes in place of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loggp: Option<LogGp>,
}

/// A machine's parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// The model that its numbers are meant for.
    pub model: Model,
    /// Sockets of a node; its ranks are dealt to them in blocks.
    pub sockets_per_node: usize,
    /// Messages below this are short.
    pub short_below_bytes: usize,
    /// Other messages below this are eager, the rest rendezvous.
    pub eager_below_bytes: usize,
    /// What a node can inject into the network (`R_N`); without it there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_bytes_per_s: Option<f64>,
    /// Reducing a byte (gamma).
    pub reduce_byte_s: Seconds,
    /// Copying a byte, also of a message that came before its receive.
    pub copy_byte_s: Seconds,
    /// Between ranks of one socket.
    pub socket: Level,
    /// Between the sockets of a node.
    pub node: Level,
    /// Between nodes.
    pub network: Level,
}

/// The highest cost, far above what any machine takes: a clock that has added up many still tells microseconds apart.
const MOST_S: Seconds = 1000.0;

/// The sets that come with this crate.
const SHIPPED: [(&str, &str); 3] = [
    ("generic", include_str!("../../../parameters/generic.toml")),
    ("blue-waters", include_str!("../../../parameters/blue-waters.toml")),
    ("lassen", include_str!("../../../parameters/lassen.toml")),
];

impl Machine {
    /// The names of the shipped sets.
    pub fn shipped_names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|&(name, _)| name)
    }

    /// A shipped set.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn shipped(name: &str) -> Result<Self> {
        let found = SHIPPED.iter().find(|&&(known, _)| known == name);
        let names: Vec<_> = Self::shipped_names().collect();
        let unknown = || Error::InvalidArgument(format!("no parameters `{name}`: there are {}", names.join(", ")));
        Self::parse(found.ok_or_else(unknown)?.1)
    }

    /// Reads a set.
    ///
    /// # Errors
    /// It is no TOML, a value is missing, or none that a cost can have.
    pub fn parse(text: &str) -> Result<Self> {
        let machine: Self = toml::from_str(text)
            .map_err(|error| Error::InvalidArgument(format!("these are no parameters of a machine: {error}")))?;
        machine.check()?;
        Ok(machine)
    }

    /// The same machine under another model.
    ///
    /// # Errors
    /// It lacks what that model needs.
    pub fn under(mut self, model: Model) -> Result<Self> {
        self.model = model;
        self.check()?;
        Ok(self)
    }

    /// The postal line of a message.
    pub(crate) fn line<'a>(&self, level: &'a Level, bytes: usize) -> &'a Line {
        match bytes {
            _ if bytes < self.short_below_bytes => &level.short,
            _ if bytes < self.eager_below_bytes => &level.eager,
            _ => &level.rendezvous,
        }
    }

    /// The levels with their names in the file.
    fn levels(&self) -> [(&'static str, &Level); 3] {
        [("socket", &self.socket), ("node", &self.node), ("network", &self.network)]
    }

    /// Whether each value is one that it can have.
    fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::InvalidArgument(format!("parameters `{}`: {text}", self.name)));
        let mut costs =
            vec![("reduce_byte_s".to_owned(), self.reduce_byte_s), ("copy_byte_s".to_owned(), self.copy_byte_s)];
        for (name, level) in self.levels() {
            for (line, Line { latency_s, byte_s }) in
                [("short", level.short), ("eager", level.eager), ("rendezvous", level.rendezvous)]
            {
                let keys = [("latency_s", latency_s), ("byte_s", byte_s)];
                costs.extend(keys.map(|(key, cost)| (format!("{name}.{line}.{key}"), cost)));
            }
            if let Some(LogGp { latency_s, overhead_s, gap_s, byte_s }) = level.loggp {
                let keys = [("latency_s", latency_s), ("overhead_s", overhead_s), ("gap_s", gap_s), ("byte_s", byte_s)];
                costs.extend(keys.map(|(key, cost)| (format!("{name}.loggp.{key}"), cost)));
            } else if self.model == Model::Loggp {
                return wrong(format!("the model loggp needs `loggp = {{ .. }}` under [{name}]"));
            }
        }
        if let Some((key, cost)) = costs.into_iter().find(|(_, cost)| !(0.0..=MOST_S).contains(cost)) {
            return wrong(format!("{key} = {cost} is no cost: give seconds from 0 to {MOST_S}"));
        }
        let least = MOST_S.recip();
        if self.injection_bytes_per_s.is_some_and(|rate| !rate.is_finite() || rate < least) {
            return wrong(format!(
                "injection_bytes_per_s is no rate: give {least} bytes a second or more, or leave it out"
            ));
        }
        if self.sockets_per_node == 0 {
            return wrong("a node has at least one socket: sockets_per_node = 0".to_owned());
        }
        if self.short_below_bytes > self.eager_below_bytes {
            return wrong("short_below_bytes lies above eager_below_bytes".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn shipped_sets_are_read_and_written_alike() {
        for name in Machine::shipped_names() {
            let machine = Machine::shipped(name).unwrap();
            assert_eq!(machine.name, name);
            assert_eq!(Machine::parse(&toml::to_string(&machine).unwrap()).unwrap(), machine);
        }
        assert!(Machine::shipped("summit").unwrap_err().to_string().contains("generic, blue-waters, lassen"));
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        let text = include_str!("../../../parameters/lassen.toml");
        let refused = |from: &str, to: &str| {
            assert!(text.contains(from));
            Machine::parse(&text.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert!(refused("latency_s = 3.67e-7", "latency_s = -1.0").contains("no cost"));
        assert!(refused("byte_s = 1.19e-9", "byte_s = nan").contains("no cost"));
        let error = refused("latency_s = 3.67e-7", "latency_s = 1e6");
        assert!(error.contains("socket.short.latency_s = 1000000 is no cost: give seconds from 0 to 1000"), "{error}");
        for rate in ["0.0", "1e-300"] {
            assert!(refused("2.387e10", rate).contains("no rate: give 0.001 bytes a second or more"), "{rate}");
        }
        assert!(refused("sockets_per_node = 2", "sockets_per_node = 0").contains("at least one socket"));
        assert!(refused("short_below_bytes = 512", "short_below_bytes = 9000").contains("above"));
        assert!(refused("name = ", "colour = 'red'\nname = ").contains("colour"));
        let loggp = Machine::parse(text).unwrap().under(Model::Loggp);
        assert!(loggp.unwrap_err().to_string().contains("under [socket]"));
    }
}
