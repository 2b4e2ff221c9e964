//! Collectives over several nodes give what one process would compute.

use std::path::Path;

use crate::harness::Job;
use crate::ranks;
use crate::testbed::Testbed;

/// `-n RANKS --nodes NODES`, and the prefix of a testbed, if there is one.
fn options<'a>(shape: &[&'a str; 2], prefix: Option<&'a str>) -> Vec<&'a str> {
    let mut options = vec!["--timeout", "250", "-n", shape[0], "--nodes", shape[1]];
    options.extend(prefix.iter().flat_map(|prefix| ["--node-exec", *prefix]));
    options
}

fn check(role: &str, shape: [&str; 2], prefix: Option<&str>, set: &str) {
    let done = ranks::job(&options(&shape, prefix), role).env("HAN_SET", set).finish();
    done.expect(0, &[]);
    let said = done.stdout.lines().filter(|line| line.ends_with(&format!("everything on {} nodes", shape[1]))).count();
    assert_eq!(said.to_string(), shape[0], "{done:#?}");
}

#[test]
fn ranks_on_nodes_agree_with_the_model() {
    let Some(testbed) = Testbed::up(4) else { return };
    check("model", ["2", "2"], Some(&testbed.prefix()), "");
    check("short-model", ["4", "4"], Some(&testbed.prefix()), "");
    check("short-model", ["5", "3"], Some(&testbed.prefix()), "");
    // More chunks than are under way at a time, on nodes of unequal sizes.
    check("short-model", ["7", "3"], Some(&testbed.prefix()), "segment_bytes=2048,leaders=2");
}

#[test]
fn ranks_on_virtual_nodes_agree_with_the_model() {
    check("model", ["3", "3"], None, "");
    check("short-model", ["4", "2"], None, "");
}

#[test]
fn short_pieces_of_a_long_vector_do_not_block_their_connection() {
    // That provider waits for the whole of a header, for which the kernel must have room.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_han"));
    command.args(["bench", "reduce", "-n", "4", "--nodes", "3", "--root", "2", "--dtype", "double_int"]);
    command.args(["--op", "maxloc", "--min", "65535", "--max", "65535", "--ms", "1"]);
    let job = Job::of(command).env("HAN_PROVIDER", "sockets").env("HAN_SET", "segment_bytes=100,timeout_s=60");
    job.finish().expect(0, &[]);
}

#[test]
fn any_number_of_operations_may_be_under_way() {
    check("very-many", ["2", "2"], None, "");
    check("very-many", ["3", "2"], None, "");
}

#[test]
fn there_are_so_many_communicators_and_no_more() {
    check("too-many", ["2", "2"], None, "");
}

#[test]
fn groups_of_one_split_share_numbers() {
    check("many-splits", ["4", "2"], None, "");
}

#[test]
fn so_they_do_whatever_is_set() {
    for set in [
        "inter_algorithm=ring,inter_policy=wait_all",
        "inter_algorithm=topology-chain,inter_policy=blocking,inter_chunk_bytes=1000",
        "inter_algorithm=rabenseifner,inter_chunk_bytes=64",
        "nodes_form=flat",
        "inter_allreduce_algorithm=nap,inter_reduce_algorithm=topology-binomial",
        "segment_bytes=2048,leaders=9,inter_allreduce_algorithm=ir+ib",
        "segment_bytes=4096,inter_policy=wait_all,methods=cico",
        "topology=pack:2 core:1,nodes_form=flat,inter_algorithm=topology-binomial",
    ] {
        check("short-model", ["4", "2"], None, set);
    }
}

/// Steps of NAP have groups of as many nodes as the smallest node has ranks (`nap-allreduce`, section III-A).
#[test]
fn nap_agrees_with_the_model_on_any_number_of_nodes() {
    let (event_driven, wait_all) = ("inter_policy=event_driven", "inter_policy=wait_all,inter_chunk_bytes=2048");
    for (shape, policy) in [
        // Powers of the ranks on a node.
        (["8", "4"], event_driven),
        (["9", "3"], wait_all),
        // Figure 8: as many nodes as divide, and no power.
        (["12", "6"], wait_all),
        // Figure 9: they do not divide.
        (["6", "3"], event_driven),
        (["10", "5"], wait_all),
        // Nodes of 3, 2 and 2 ranks, and of 3, 3, 3 and 2.
        (["7", "3"], event_driven),
        (["7", "3"], wait_all),
        (["11", "4"], event_driven),
    ] {
        check("short-model", shape, None, &format!("inter_algorithm=nap,{policy}"));
    }
}

#[test]
fn other_allreduces_that_know_nodes_agree_with_the_model() {
    for shape in [["8", "4"], ["10", "5"], ["7", "3"]] {
        check("short-model", shape, None, "inter_algorithm=smp,inter_policy=blocking,inter_chunk_bytes=2048");
        check("short-model", shape, None, "inter_algorithm=leaders-2,inter_policy=wait_all,inter_chunk_bytes=2048");
    }
}

#[test]
fn every_leader_of_a_node_has_a_slice() {
    for (shape, set) in [
        (["4", "2"], "leaders=2"),
        (["8", "2"], "leaders=4,inter_allreduce_algorithm=rabenseifner"),
        // Leaders of the small node have two rails each, or all of them.
        (["7", "2"], "leaders=4"),
        (["5", "4"], "leaders=2,segment_bytes=4096,inter_allreduce_algorithm=ir+ib"),
    ] {
        check("short-model", shape, None, set);
    }
}

#[test]
fn ranks_exchange_between_nodes_by_pairs() {
    // Numbers of nodes that are powers of the ranks on each, that divide and that do not; one that has fewer ranks.
    for shape in [["4", "4"], ["8", "4"], ["6", "2"], ["6", "3"], ["9", "3"], ["10", "5"], ["7", "2"]] {
        check("short-model", shape, None, "inter_allreduce_algorithm=nap");
    }
    check("short-model", ["8", "2"], None, "inter_allreduce_algorithm=nap,segment_bytes=1024");
}

#[test]
fn trees_of_all_ranks_know_the_sockets_of_all_nodes() {
    let hello = program("hello");
    let job = Job::new(&[&options(&["8", "2"], None)[..], &["--", &hello]].concat());
    let done = job.env("HAN_LOG", "info").env("HAN_SET", "topology=pack:2 core:2").finish();
    done.expect(0, &["8 ranks; this rank is one of 4 on node 0, of which 2 on its socket"]);
}

#[test]
fn reproducible_sums_depend_on_no_placement_and_no_algorithm() {
    let sets = ["inter_algorithm=ring,segment_bytes=512", "inter_allreduce_algorithm=rabenseifner"];
    for (nodes, set) in [("1", ""), ("2", ""), ("3", ""), ("2", sets[0]), ("2", sets[1])] {
        let job = ranks::job(&options(&["5", nodes], None), "in-order");
        let done = job.env("HAN_REPRODUCIBLE", "1").env("HAN_SET", set).finish();
        done.expect(0, &[]);
        assert_eq!(done.stdout.lines().filter(|line| line.contains("everything")).count(), 5, "{done:#?}");
    }
}

/// A program that was built beside the launcher.
fn program(name: &str) -> String {
    Path::new(env!("CARGO_BIN_EXE_han")).with_file_name(name).to_str().unwrap().to_owned()
}

#[test]
fn gradient_has_the_same_loss_on_every_rank() {
    let Some(testbed) = Testbed::up(2) else { return };
    let gradient = program("gradient");
    let prefix = testbed.prefix();
    let words = [&options(&["4", "2"], Some(&prefix))[..], &["--", &gradient, "--steps", "30"]].concat();
    let done = Job::new(&words).finish();
    done.expect(0, &[]);
    assert!(done.stdout.contains("on every rank"), "{done:#?}");
}

#[test]
fn bench_tells_nodes_and_algorithm() {
    let Some(testbed) = Testbed::up(2) else { return };
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_han"));
    command.args(["bench", "allreduce", "-n", "2", "--nodes", "2", "--node-exec", &testbed.prefix()]);
    command.args(["--min", "8", "--max", "64K", "--factor", "16", "--ms", "1", "--json"]);
    let done = Job::of(command).finish();
    done.expect(0, &[]);
    let rows: Vec<serde_json::Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() >= 3);
    for row in rows {
        assert_eq!((&row["ranks"], &row["nodes"], &row["verified"]), (&2.into(), &2.into(), &true.into()), "{row}");
        assert!(row["choice"].as_str().unwrap().starts_with("net/"), "{row}");
    }
}

#[test]
fn the_slowest_wire_decides_for_all() {
    let Some(testbed) = Testbed::up(3) else { return };
    let chosen = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_han"));
        command.args(["bench", "bcast", "-n", "3", "--nodes", "3", "--node-exec", &testbed.prefix()]);
        command.args(["--min", "8K", "--max", "8K", "--ms", "1", "--json"]);
        let done = Job::of(command).finish();
        done.expect(0, &[]);
        let row: serde_json::Value = serde_json::from_str(done.stdout.trim()).unwrap();
        row["choice"].as_str().unwrap().to_owned()
    };
    assert_eq!(chosen(), "net/binomial");
    let limit = ["root", "tbf", "rate", "1gbit", "burst", "125000", "latency", "50ms"];
    testbed.on_node(1, &[&["tc", "qdisc", "add", "dev", "eth0"], &limit[..]].concat());
    assert_eq!(chosen(), "net/chain");
}

#[test]
fn bench_tells_what_overlaps_on_each_leader() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_han"));
    command.args(["bench", "allreduce,bcast", "-n", "4", "--nodes", "2", "--overlap", "--json"]);
    command.args(["--min", "512K", "--max", "512K", "--ms", "1", "--set", "intra_module=solo"]);
    let done = Job::of(command).finish();
    done.expect(0, &[]);
    let rows: Vec<serde_json::Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 4, "{done:#?}");
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(number("inter_us") > 0.0 && number("intra_us") > 0.0 && number("both_us") > 0.0, "{row}");
        assert!((0.0..=1.0).contains(&number("overlap")), "{row}");
        assert!(row["intra"].as_str().unwrap().starts_with("solo/"), "{row}");
    }
}

#[test]
fn explain_draws_the_figures_of_the_dissertation() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_han"));
    command.args(["explain", "allreduce", "4M", "-n", "4", "--nodes", "2", "--plan"]);
    command.env("HAN_SET", "inter_allreduce_algorithm=ir+ib,segment_bytes=256K");
    let done = Job::of(command).finish();
    done.expect(0, &[]);
    for task in ["ranks 0, 3\n", "irsr(1)", "ibirsr(2)", "sbibirsr(3)", "sbibir(15)", "sbib(15)", "sb(15)", "sbsr(3)"] {
        assert!(done.stdout.contains(task), "{task}: {}", done.stdout);
    }
}

#[test]
fn explain_names_the_algorithm_and_its_setting() {
    let explain = |arguments: &[&str], set: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_han"));
        command.arg("explain").args(arguments).env("HAN_SET", set);
        let done = Job::of(command).finish();
        done.expect(0, &[]);
        done.stdout
    };
    let text = explain(&["allreduce", "1M", "-n", "8", "--nodes", "4"], "");
    assert!(text.contains("8 ranks on 4 nodes") && text.contains("inter_algorithm"), "{text}");
    // This machine plays the nodes, as in a job of `han run`, unless the settings say otherwise.
    let text = explain(&["allreduce", "8", "-n", "256", "--nodes", "256"], "");
    assert!(text.contains("core is shared: this machine plays all nodes: 256 ranks, "), "{text}");
    let text = explain(&["allreduce", "8", "-n", "256", "--nodes", "256"], "assume_own_cores=1");
    assert!(text.contains("core is own: the setting says so"), "{text}");
    let text = explain(&["allreduce", "1M", "-n", "8", "--nodes", "4"], "inter_algorithm=rabenseifner");
    assert!(text.contains("nodes/rabenseifner") && text.contains("the setting says so"), "{text}");
    let text = explain(&["reduce", "1M", "-n", "8", "--nodes", "4"], "nodes_form=flat,assume_own_cores=1");
    assert!(text.contains("net/chain") && text.contains("all over the network"), "{text}");
    let text = explain(&["allreduce", "8", "-n", "16", "--nodes", "4"], "inter_algorithm=nap");
    assert!(text.contains("nodes/nap") && text.contains("combines in the memory of each node"), "{text}");
    let text = explain(&["allreduce", "8", "-n", "16", "--nodes", "4"], "inter_algorithm=nap,nodes_form=flat");
    assert!(text.contains("net/nap"), "{text}");
    let text = explain(&["allreduce", "8", "-n", "16", "--nodes", "4"], "inter_algorithm=smp");
    assert!(text.contains("net/smp") && text.contains("goes by the nodes itself"), "{text}");
    let text = explain(&["allreduce", "8", "-n", "15", "--nodes", "4"], "inter_algorithm=nap");
    assert!(text.contains("nodes/nap") && text.contains("combines in the memory of each node"), "{text}");
    let text = explain(&["allreduce", "8", "-n", "7", "--nodes", "4"], "inter_algorithm=nap,assume_own_cores=1");
    assert!(text.contains("nodes/recursive-doubling") && text.contains("nap is set, but"), "{text}");
    let text = explain(&["bcast", "8", "--nodes", "4", "--json"], "inter_algorithm=ring");
    assert!(text.contains("\"nodes\":4") && text.contains("ring is set, but"), "{text}");
}
