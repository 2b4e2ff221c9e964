//! Names on the command line, and what they stand for.

use net_fabric::algorithm::{Algorithm, Collective, Shape};
use net_fabric::engine::Policy;
use net_fabric::transport::simulated::Model;

use super::Result;

pub(super) fn parse_collective(text: &str) -> std::result::Result<Collective, String> {
    find(&Collective::ALL.map(|collective| (collective.name(), collective)), text, "collective")
}

pub(super) fn parse_model(text: &str) -> std::result::Result<Model, String> {
    find(&Model::ALL.map(|model| (model.name(), model)), text, "cost model")
}

fn find<T: Copy>(known: &[(&str, T)], text: &str, what: &str) -> std::result::Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text).map(|&(_, value)| value);
    let names: Vec<_> = known.iter().map(|&(name, _)| name).collect();
    found.ok_or_else(|| format!("there is no {what} `{text}`: choose {}", names.join(", ")))
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

/// The algorithms that were named, or all that do this.
pub(super) fn algorithms(collective: Collective, names: &[String]) -> Result<Vec<Algorithm>> {
    if !names.is_empty() {
        return names.iter().map(|name| Ok(name.parse()?)).collect();
    }
    // What an algorithm is for does not depend on the ranks, but for the topology, which the simulation has.
    let topology = net_fabric::algorithm::Topology::new(&[&[0, 1]]);
    let shape = Shape { size: 2, bytes: 8, element_bytes: 8, topology: Some(&topology), ..Shape::default() };
    Ok(Algorithm::all().filter(|algorithm| algorithm.applies(collective, &shape).is_ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
