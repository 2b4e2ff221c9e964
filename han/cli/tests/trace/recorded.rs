//! What a job that ends well has recorded.

use crate::roles::job;
use crate::testbed::Testbed;
use crate::traced::{Span, Traced, folder, han_trace, names};

/// What each rank of the role `few` has called, as (name, communicator, number, bytes).
const CALLED: [(&str, u64, u64, u64); 9] = [
    ("barrier", 0, 0, 0),
    ("allreduce", 0, 1, 8000),
    ("allreduce", 0, 2, 8000),
    ("allreduce", 0, 3, 8000),
    ("bcast", 0, 4, 80),
    ("allreduce", 0, 5, 40_000),
    ("allreduce", 1, 0, 400),
    ("allreduce", 0, 6, 56),
    ("reduce", 1, 1, 4),
];

#[track_caller]
fn check_few(traced: &Traced, ranks: usize) {
    traced.check(ranks);
    assert_eq!((&traced.about["size"], &traced.about["whole"]), (&ranks.into(), &true.into()));
    let mut ends = vec![Vec::new(); CALLED.len()];
    for rank in 0..ranks {
        let calls = traced.calls(rank);
        // The second communicator has some number.
        let called: Vec<_> =
            calls.iter().map(|(name, _, comm, number, bytes)| (&**name, (*comm).min(1), *number, *bytes)).collect();
        assert_eq!(called, CALLED, "rank {rank}");
        for ((name, lane, ..), place) in calls.iter().zip(0..) {
            let expected = if (5..8).contains(&place) { "operations" } else { "calls" };
            assert!(lane.starts_with(expected), "{name} on {lane}");
        }
        let spans = traced.spans(rank);
        assert_eq!(spans.iter().filter(|span| span.name == "wait").count(), 3);
        assert!(spans.iter().all(|span| span.args["open"].is_null() && span.args["error"].is_null()));
        let of_calls: Vec<_> = spans.into_iter().filter(|span| span.category == "call").collect();
        assert!(of_calls.iter().all(|span| !span.args["choice"].as_str().unwrap().is_empty()));
        assert!(of_calls[4].args["root"] == ranks - 1 && of_calls[8].args["root"] == 0);
        for (ends, span) in ends.iter_mut().zip(of_calls) {
            ends.push((span.begin, span.end));
        }
        assert_eq!(traced.rank(rank)["dropped"], 0);
    }
    // Nobody leaves a barrier or an allreduce before all have come: on one time axis.
    let slack = (0..ranks).map(|rank| traced.rank(rank)["clock_error_ns"].as_f64().unwrap()).fold(0.0, f64::max);
    for (name, ends) in CALLED.iter().zip(ends).filter(|(called, _)| matches!(called.0, "barrier" | "allreduce")) {
        let last_in = ends.iter().map(|(begin, _)| *begin).fold(f64::MIN, f64::max);
        let first_out = ends.iter().map(|(_, end)| *end).fold(f64::MAX, f64::min);
        assert!(last_in <= first_out + 2.0 * slack / 1000.0 + 0.01, "{name:?}: {ends:?}");
    }
}

#[test]
fn the_last_word_of_a_rank_is_its_last() {
    let (folder, file) = folder();
    job(&["-n", "2"], "late", &file).finish().expect(0, &[]);
    assert_eq!(names(&folder), ["trace.json"]);
}

#[test]
fn a_job_on_one_node_becomes_one_file() {
    let (folder, file) = folder();
    // The remains of other jobs are replaced, or let be.
    std::fs::write(folder.path().join("trace.json.rank-1"), "old").unwrap();
    std::fs::write(&file, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"han 0.0.1\",").unwrap();
    job(&["-n", "3"], "few", &file).finish().expect(0, &[]);
    let traced = Traced::read(&file);
    check_few(&traced, 3);
    assert_eq!(names(&folder), ["trace.json"]);
    assert!(traced.lanes(0)[..2] == ["calls", "operations"], "{:?}", traced.lanes(0));
    let hosts: Vec<_> = (0..3).map(|rank| &traced.rank(rank)["host"]).collect();
    assert!(hosts.iter().all(|host| *host == hosts[0]), "{hosts:?}");
}

#[test]
fn so_does_a_rank_alone() {
    let (_folder, file) = folder();
    job(&["-n", "1"], "few", &file).finish().expect(0, &[]);
    check_few(&Traced::read(&file), 1);
}

#[test]
fn so_does_a_job_on_several_nodes() {
    let (folder, file) = folder();
    job(&["-n", "4", "--nodes", "2"], "few", &file).finish().expect(0, &[]);
    let traced = Traced::read(&file);
    check_few(&traced, 4);
    assert_eq!(names(&folder), ["trace.json"]);
    let nodes: Vec<_> = (0..4).map(|rank| traced.rank(rank)["node"].as_u64().unwrap()).collect();
    assert_eq!(nodes, [0, 0, 1, 1]);
    assert!((0..4).all(|rank| traced.rank(rank)["clock_error_ns"] == 0), "one machine has one clock");
}

/// The chunks of which `rank` has done tasks of `kind` for the call with `number`; each lies within the call.
fn chunks(traced: &Traced, rank: usize, number: u64, kind: &str) -> Vec<u64> {
    let spans = traced.spans(rank);
    let of_call = |span: &&Span| span.args["number"] == number && span.args["communicator"] == 0;
    let call = spans.iter().filter(of_call).find(|span| span.category == "call").unwrap();
    let tasks = || spans.iter().filter(of_call).filter(|span| span.category == "task");
    for task in tasks() {
        assert!(call.begin <= task.begin && task.end <= call.end + 0.002, "{task:?} in {call:?}");
        assert_eq!(task.args["kind"], task.name);
        let (level, lane) = match &*task.name {
            "sr" => ("memory", "memory, up"),
            "sb" => ("memory", "memory, down"),
            "ib" if call.name == "allreduce" => ("network", "rail 0, back"),
            _ => ("network", "rail 0"),
        };
        assert_eq!(task.args["level"], level);
        // Chunks may be on their way together through the network, and never through memory.
        assert!(task.lane == lane || level == "network" && task.lane.starts_with(lane), "{task:?}");
    }
    let mut of_kind: Vec<&Span> = tasks().filter(|task| task.name == kind).collect();
    of_kind.sort_by_key(|task| task.args["chunk"].as_u64());
    of_kind.iter().map(|task| task.args["chunk"].as_u64().unwrap()).collect()
}

#[test]
fn tasks_of_both_levels_have_lanes_of_their_own() {
    let (_folder, file) = folder();
    let set = "segment_bytes=65536,leaders=1,inter_allreduce_algorithm=ir+ib,nodes_form=hierarchical";
    job(&["-n", "4", "--nodes", "2"], "tasks", &file).env("HAN_SET", set).finish().expect(0, &[]);
    let traced = Traced::read(&file);
    traced.check(4);
    // By call: its chunks, and what leaders and the other ranks do for each.
    let calls: [(u64, u64, &[&str], &[&str]); 4] = [
        (0, 5, &["ib", "sb"], &["sb"]),
        (1, 5, &["sr", "ir", "ib", "sb"], &["sr", "sb"]),
        (2, 5, &["sr", "ir", "ib", "sb"], &["sr", "sb"]),
        (3, 1, &["sr", "ir", "ib", "sb"], &["sr", "sb"]),
    ];
    for (number, count, of_leaders, of_others) in calls {
        // One rank of each node leads it.
        let leads: Vec<bool> = (0..4).map(|rank| !chunks(&traced, rank, number, "ib").is_empty()).collect();
        assert!(leads[0] != leads[1] && leads[2] != leads[3], "{leads:?}");
        for (rank, leads) in leads.into_iter().enumerate() {
            let does = if leads { of_leaders } else { of_others };
            for kind in ["sr", "ir", "ib", "ia", "sb"] {
                let expected: Vec<u64> = if does.contains(&kind) { (0..count).collect() } else { Vec::new() };
                assert_eq!(chunks(&traced, rank, number, kind), expected, "{kind} of call {number} on rank {rank}");
            }
        }
    }
    // A chunk's tasks follow one another where one needs the other's data.
    let leads = |rank: &usize| !chunks(&traced, *rank, 1, "ib").is_empty();
    let leaders: Vec<usize> = (0..4).filter(leads).collect();
    for (number, rank) in [(1, leaders[0]), (1, leaders[1]), (2, leaders[0]), (2, leaders[1])] {
        for chunk in 0..5_u64 {
            let spans = traced.spans(rank);
            let task = |kind: &str| {
                let is_it = |span: &&Span| {
                    (&span.args["kind"], &span.args["chunk"], &span.args["number"])
                        == (&kind.into(), &chunk.into(), &number.into())
                };
                spans.iter().find(is_it).unwrap().clone()
            };
            assert!(task("sr").end <= task("ir").begin + 0.002);
            assert!(task("ir").end <= task("ib").begin + 0.002);
            // What is handed out may still be on its way to the other node.
            assert!(task("ib").begin <= task("sb").begin + 0.002);
        }
    }
    let text = han_trace(&[file.to_str().unwrap(), "--call", "1"]).unwrap();
    let table = text.split_once("overlap |").unwrap().1;
    let overlap = |rank: usize| {
        let mut rows = table.lines().filter(|line| line.contains("allreduce"));
        rows.nth(rank).unwrap().trim_end_matches([' ', '|']).rsplit(' ').next().unwrap().to_owned()
    };
    for rank in 0..4 {
        if leaders.contains(&rank) {
            assert!((0.0..=1.0).contains(&overlap(rank).parse::<f64>().unwrap()), "{text}");
        } else {
            assert_eq!(overlap(rank), "-", "{text}");
        }
    }
}

#[test]
fn calls_of_nodes_among_themselves_are_told_apart() {
    let (_folder, file) = folder();
    job(&["-n", "4", "--nodes", "2"], "nodes", &file).finish().expect(0, &[]);
    let traced = Traced::read(&file);
    let named = |rank| {
        let spans = traced.spans(rank).into_iter().filter(|span| span.name == "bcast");
        spans.map(|span| (span.args["communicator"].clone(), span.args["group"].clone())).collect::<Vec<_>>()
    };
    let ids: Vec<_> = (0..4).map(|rank| named(rank)[0].0.clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "nobody has told the nodes of each other's: {ids:?}");
    assert_eq!([0, 1, 2, 3].map(|rank| named(rank)[4].1.clone()), [0, 0, 2, 2]);
    let text = han_trace(&[file.to_str().unwrap()]).unwrap();
    let row = text.lines().find(|line| line.starts_with("| bcast")).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!((cells[1], cells[3], cells[4]), ("24", "10", "0"), "calls: {text}");
    let one = han_trace(&[file.to_str().unwrap(), "--call", &format!("{}:3", ids[0])]).unwrap();
    assert!(one.contains("| bcast"), "{one}");
}

#[test]
fn a_message_ends_while_its_sender_waits_in_memory() {
    let (_folder, file) = folder();
    // One chunk, and more than the memory of a node holds before it is read.
    let set = "segment_bytes=16777216,leaders=1,nodes_form=hierarchical";
    job(&["-n", "4", "--nodes", "2"], "late-reader", &file).env("HAN_SET", set).finish().expect(0, &[]);
    let spans = Traced::read(&file).spans(0);
    let end = |kind: &str| spans.iter().find(|span| span.args["kind"] == kind).unwrap().end;
    assert!(end("ib") < end("sb"), "{spans:#?}");
}

#[test]
fn nodes_need_no_common_file_system() {
    let Some(testbed) = Testbed::up(2) else { return };
    // Each node has a /dev/shm of its own.
    let file = std::path::Path::new("/dev/shm/trace.json");
    let prefix = testbed.prefix();
    job(&["-n", "3", "--nodes", "2", "--node-exec", &prefix], "few", file).finish().expect(0, &[]);
    check_few(&Traced::parse(&testbed.on_node(0, &["cat", "/dev/shm/trace.json"])), 3);
    assert_eq!(testbed.on_node(0, &["ls", "/dev/shm"]), "trace.json\n");
    assert_eq!(testbed.on_node(1, &["ls", "/dev/shm"]), "");
}

#[test]
fn clocks_that_are_far_apart_are_brought_together() {
    if Testbed::up(1).is_none() {
        return;
    }
    // The second node's clock is 1000 seconds ahead; and each rank's is one that it shares with no other.
    let ahead = "unshare --time --monotonic {node}000 --fork --kill-child";
    let (_folder, file) = folder();
    job(&["-n", "3", "--nodes", "2", "--node-exec", ahead], "few", &file).finish().expect(0, &[]);
    let traced = Traced::read(&file);
    check_few(&traced, 3);
    let error = |rank: usize| traced.rank(rank)["clock_error_ns"].as_u64().unwrap();
    assert_eq!(error(0), 0);
    assert!((1..3).all(|rank| error(rank) > 0 && error(rank) < 1_000_000_000), "{:#?}", traced.about);
}

#[test]
fn memory_is_bounded_and_what_was_dropped_is_told() {
    let (_folder, file) = folder();
    job(&["-n", "2"], "refused", &file).env("HAN_SET", "trace_spans=10").finish().expect(0, &[]);
    let traced = Traced::read(&file);
    traced.check(2);
    for rank in 0..2 {
        let spans = traced.spans(rank);
        assert_eq!(spans.len(), 10);
        let numbers: Vec<_> = traced.calls(rank).iter().map(|call| call.3).collect();
        // Whoever is slow has written once a second in between, which is a span like others.
        let written = 10 - numbers.len();
        assert_eq!(numbers, (11 + written as u64..21).collect::<Vec<_>>(), "the latest");
        // At least the first writing, the call that was refused and the writing after it, ten barriers.
        assert!(traced.rank(rank)["dropped"].as_u64().unwrap() >= 13, "{:#?}", traced.about);
    }
}
