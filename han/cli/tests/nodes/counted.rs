//! NAP's promise, kept by real jobs: no rank sends more than ceil(log_ppn(nodes)) messages to other nodes.

use han::{Context, Operator, Result};

use crate::ranks;

/// The role: one allreduce, whose messages to other nodes are counted.
pub(crate) fn rank() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let sent = || {
        let described = world.describe();
        let line = described.lines().find_map(|line| line.strip_prefix("messages so far: ")).unwrap().to_owned();
        line.split_once(" to other nodes").unwrap().0.parse::<u64>().unwrap()
    };
    let before = sent();
    let mut sum = [i64::try_from(world.rank()).unwrap(), 1];
    world.allreduce_in_place(&mut sum, Operator::Sum)?;
    let size = i64::try_from(world.size()).unwrap();
    assert_eq!(sum, [size * (size - 1) / 2, size]);
    println!("sent {} messages to other nodes", sent() - before);
    println!("by {}", world.choice(&han::Call::allreduce_in_place(&mut sum, Operator::Sum.into())));
    context.finalize()
}

#[test]
fn nap_sends_as_few_messages_between_nodes_as_it_promises() {
    for (ranks, nodes, nap) in [(8, 4, 2), (16, 4, 1), (9, 3, 1), (6, 3, 2), (12, 6, 3), (10, 5, 3), (7, 3, 2)] {
        let most = |algorithm: &str, form: &str| {
            let job = ranks::job(&["-n", &ranks.to_string(), "--nodes", &nodes.to_string()], "counted");
            let done = job.env("HAN_SET", &format!("inter_algorithm={algorithm},nodes_form={form}")).finish();
            done.expect(0, &[]);
            let by = if form == "flat" { "by net/" } else { "by nodes/" };
            assert!(done.stdout.contains(&format!("{by}{algorithm}\n")), "{done:#?}");
            let number = |line: &str| line.strip_prefix("sent ")?.split_once(' ')?.0.parse::<u64>().ok();
            let sent: Vec<u64> = done.stdout.lines().filter_map(number).collect();
            assert_eq!(sent.len(), ranks, "{done:#?}");
            sent.into_iter().max().unwrap()
        };
        assert_eq!(most("nap", "flat"), nap, "{ranks} ranks on {nodes} nodes");
        if nodes == 4 {
            assert_eq!(most("recursive-doubling", "flat"), 2, "{ranks} ranks on {nodes} nodes");
        } else {
            assert!(most("nap", "hierarchical") <= nap, "{ranks} ranks on {nodes} nodes, within these by memory");
        }
    }
}
