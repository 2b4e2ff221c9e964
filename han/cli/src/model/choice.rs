//! Names on the command line, and what they stand for.

use std::fmt;
use std::str::FromStr;

use net_fabric::algorithm::{Algorithm, Collective};
use net_fabric::engine::Policy;
use net_fabric::transport::simulated::Model;

use super::Result;
use crate::named::find;

pub(super) fn parse_model(text: &str) -> std::result::Result<Model, String> {
    find(&Model::ALL.map(|model| (model.name(), model)), text, "cost model")
}

pub(super) fn parse_policy(text: &str) -> std::result::Result<Policy, String> {
    let wrong = || format!("there is no policy `{text}`: choose blocking, wait-all, event or event:SENDS,RECEIVES");
    match text {
        "blocking" => Ok(Policy::Blocking),
        "wait-all" => Ok(Policy::WaitAll),
        "event" => Ok(Policy::default()),
        _ => {
            let numbers = text.strip_prefix("event:").and_then(|numbers| numbers.split_once(',')).ok_or_else(wrong)?;
            match (numbers.0.parse(), numbers.1.parse()) {
                (Ok(sends), Ok(recvs)) if 0 < sends && sends < recvs => Ok(Policy::EventDriven { sends, recvs }),
                (Err(error), _) | (_, Err(error)) => Err(format!("`{text}`: {error}")),
                _ => Err(format!("`{text}`: more receives than sends, and at least one send")),
            }
        }
    }
}

pub(super) fn policy_text(policy: Policy) -> String {
    match policy {
        Policy::Blocking => "blocking".to_owned(),
        Policy::WaitAll => "wait-all".to_owned(),
        Policy::EventDriven { sends, recvs } => format!("event:{sends},{recvs}"),
    }
}

/// How a collective is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By all ranks, by this algorithm.
    Flat(Algorithm),
    /// On both levels, by tasks.
    Tasks(Tasks),
}

/// How tasks go across the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tasks {
    /// Leaders of each node.
    pub(super) leaders: usize,
    /// The leaders' algorithm.
    pub(super) across: Algorithm,
    /// That of what comes back, if that is a task of its own.
    pub(super) back: Option<Algorithm>,
}

/// What their names begin with.
const TASKS: &str = "nodes";

impl fmt::Display for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.leaders {
            1 => write!(f, "{TASKS}/{}", self.across)?,
            leaders => write!(f, "{TASKS}-{leaders}/{}", self.across)?,
        }
        self.back.map_or(Ok(()), |back| write!(f, "+{back}"))
    }
}

impl Tasks {
    /// What stands behind `nodes`.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let algorithm = |name: &str| name.parse::<Algorithm>();
        let wrong = || format!("`{TASKS}{text}`: expected nodes/A, or nodes-L/A with a number of leaders L from 1 on");
        let (leaders, names) = text.split_once('/').ok_or_else(wrong)?;
        let leaders = match leaders.strip_prefix('-') {
            Some(number) => number.parse().ok().filter(|&leaders| leaders > 0).ok_or_else(wrong)?,
            None if leaders.is_empty() => 1,
            None => return Err(wrong()),
        };
        let (across, back) = names.split_once('+').map_or((names, None), |(across, back)| (across, Some(back)));
        let tasks = Self { leaders, across: algorithm(across)?, back: back.map(algorithm).transpose()? };
        if tasks.across == Algorithm::Nap && (leaders > 1 || back.is_some()) {
            return Err(format!("`{TASKS}{text}`: nap has all ranks exchange between nodes, so it has no leaders"));
        }
        Ok(tasks)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flat(algorithm) => algorithm.fmt(f),
            Self::Tasks(tasks) => tasks.fmt(f),
        }
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name.strip_prefix(TASKS) {
            Some(tasks) => Tasks::parse(tasks).map(Self::Tasks),
            None => name.parse().map(Self::Flat),
        }
    }
}

/// The algorithms of all ranks among `ways`.
pub(super) fn flat(ways: &[Way]) -> Result<Vec<Algorithm>> {
    let algorithm = |way: &Way| match way {
        Way::Flat(algorithm) => Ok(*algorithm),
        Way::Tasks(..) => {
            Err(format!("{way}: --noise and --verify look at algorithms of all ranks alone, such as ring").into())
        }
    };
    ways.iter().map(algorithm).collect()
}

/// The ways that were named, or all algorithms that do this.
pub(super) fn ways(collective: Collective, names: &[String]) -> Result<Vec<Way>> {
    if !names.is_empty() {
        return names.iter().map(|name| Ok(name.parse()?)).collect();
    }
    Ok(Algorithm::all().filter(|algorithm| algorithm.is_for(collective)).map(Way::Flat).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ways_lead_back() {
        for name in [
            "ring",
            "leaders-2",
            "nodes/ring",
            "nodes/nap",
            "nodes-2/ring",
            "nodes/chain+binary",
            "nodes-16/chain+binary",
        ] {
            assert_eq!(name.parse::<Way>().unwrap().to_string(), name);
        }
        for (name, why) in [
            ("nodes", "nodes-L/A"),
            ("nodes-0/ring", "nodes-L/A"),
            ("nodes-2", "nodes-L/A"),
            ("nodes2/ring", "nodes-L/A"),
            ("nodes-2/nap", "no leaders"),
        ] {
            let error = name.parse::<Way>().unwrap_err();
            assert!(error.contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn policies_lead_back() {
        for policy in [Policy::Blocking, Policy::WaitAll, Policy::default(), Policy::EventDriven { sends: 1, recvs: 9 }]
        {
            assert_eq!(parse_policy(&policy_text(policy)), Ok(policy));
        }
        for text in ["", "events", "event:", "event:2", "event:0,1", "event:2,2"] {
            assert!(parse_policy(text).is_err(), "{text}");
        }
        assert!(parse_policy("event:99999999999,999999999999").is_err_and(|error| error.contains("too large")));
    }
}
