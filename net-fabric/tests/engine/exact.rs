//! Every algorithm under every policy gives what a serial computation gives.

use net_fabric::algorithm::{Algorithm, Collective};
use net_fabric::engine::{Policy, Settings};
use net_fabric::transport::loopback::Options;

use crate::rig::{Case, Random, run};

/// Every algorithm under every policy, the rest as in `like`.
pub(crate) fn everything(size: usize, like: Case) -> Vec<Case> {
    let policies = [Policy::Blocking, Policy::WaitAll, Policy::EventDriven { sends: 2, recvs: 3 }];
    let mut cases = Vec::new();
    for collective in Collective::ALL {
        for algorithm in Algorithm::all() {
            cases.extend(policies.map(|policy| Case { collective, algorithm, policy, ..like }));
        }
    }
    cases.retain(|case| case.exists(size));
    cases
}

fn policies(random: &mut Random) -> [Policy; 4] {
    let sends = u32::try_from(1 + random.below(4)).unwrap();
    let recvs = sends + 1 + u32::try_from(random.below(2)).unwrap();
    let event_driven = Policy::EventDriven { sends, recvs };
    [Policy::Blocking, Policy::WaitAll, Policy::EventDriven { sends: 1, recvs: 2 }, event_driven]
}

const COUNTS: [usize; 6] = [0, 1, 2, 5, 33, 200];

/// All that exists, for every root, and for so many of the counts by chance; in random order.
fn cases(size: usize, counts: usize, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for collective in Collective::ALL {
        let rooted = collective.has_root();
        for algorithm in Algorithm::all() {
            for root in 0..if rooted { size } else { 1 } {
                for policy in policies(random) {
                    let first = random.below(COUNTS.len());
                    for count in COUNTS.into_iter().cycle().skip(first).take(counts) {
                        let [in_place, commutative] = [(); 2].map(|()| random.below(2) == 0);
                        let (chunk_bytes, slots) = ([4, 16, 60, 1000][random.below(4)], 1 + random.below(3));
                        let case = Case {
                            collective,
                            algorithm,
                            policy,
                            root,
                            count,
                            in_place,
                            commutative,
                            chunk_bytes,
                            slots,
                        };
                        cases.extend(case.exists(size).then_some(case));
                    }
                }
            }
        }
    }
    for end in (1..cases.len()).rev() {
        cases.swap(end, random.below(end + 1));
    }
    cases
}

fn all(counts: usize, options: Options, settings: Settings, seed: u64) {
    let mut random = Random(seed);
    for size in 1..=9 {
        let all = cases(size, counts, &mut random);
        for policy in [Policy::Blocking, Policy::WaitAll] {
            for collective in Collective::ALL {
                let exists = |case: &Case| case.policy == policy && case.collective == collective;
                assert!(all.iter().any(exists), "{collective:?} under {policy:?}");
            }
        }
        for (batch, some) in all.chunks(40).enumerate() {
            run(some, size, options, settings, seed + batch as u64);
        }
    }
}

#[test]
fn on_a_quiet_transport() {
    all(COUNTS.len(), Options::default(), Settings::default(), 11);
}

#[test]
fn with_synchronous_sends() {
    all(1, Options { synchronous: true, ..Default::default() }, Settings::default(), 12);
}

#[test]
fn with_disorder_and_few_operations_under_way() {
    all(1, Options { disorder: Some(3), ..Default::default() }, Settings { operations: 2, ..Default::default() }, 13);
}

#[test]
fn with_disorder_and_synchronous_sends() {
    all(2, Options { synchronous: true, disorder: Some(4), ..Default::default() }, Settings::default(), 14);
}
