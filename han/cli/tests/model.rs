//! `han model` as a user runs it.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs `han model`; gives standard output, or standard error if it failed.
fn model(arguments: &str) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_han"));
    let output = command.arg("model").args(arguments.split(' ')).stdin(Stdio::null()).output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

fn json(arguments: &str) -> Vec<Value> {
    let text = model(&format!("{arguments} --json")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn predictions_come_with_their_closed_forms() {
    let rows =
        json("allreduce --nodes 2..8 --ppn 4 --bytes 8,1K --algorithm recursive-doubling,smp,ring --model postal");
    assert_eq!(rows.len(), 3 * 2 * 3);
    for row in &rows {
        assert_eq!(row["ranks"].as_u64(), row["nodes"].as_u64().map(|nodes| nodes * 4));
        assert!(row["us"].as_f64().is_some_and(|us| us > 0.0), "{row}");
        assert_eq!(row["equation_us"].is_null(), row["algorithm"] == "ring", "{row}");
        // Equations take all ranks of a node to be on different sockets.
        assert!(row["equation_us"].as_f64().is_none_or(|us| us > row["us"].as_f64().unwrap()), "{row}");
    }
}

/// Figures 13 and 15 of `nap-allreduce` are such ratios.
#[test]
fn algorithms_are_compared_with_one() {
    let rows = json("allreduce --nodes 4,16 --ppn 4 --bytes 8,64K --algorithm nap,smp --against nap");
    for pair in rows.chunks(2) {
        let us = [0, 1].map(|index| pair[index]["us"].as_f64().unwrap());
        assert_eq!([&pair[0]["ratio"], &pair[1]["ratio"]], [&Value::from(1.0), &Value::from(us[1] / us[0])]);
    }
    let text = model("allreduce --nodes 16 --ppn 4 --algorithm nap,smp --against nap").unwrap();
    assert!(text.contains("times as long as nap"), "{text}");
    let error = model("allreduce --algorithm smp --against nap").unwrap_err();
    assert!(error.contains("name it with --algorithm too"), "{error}");
}

#[test]
fn tasks_of_both_levels_are_put_on_a_clock() {
    let us = |arguments: &str| json(arguments)[0]["us"].as_f64().unwrap();
    // One rank a node and one chunk: only what the leaders do.
    let alone = "bcast --nodes 8 --bytes 64K --algorithm";
    assert_eq!(us(&format!("{alone} nodes/binary")), us(&format!("{alone} binary")));
    // Four ranks a node: that, and behind it a broadcast on the node from whichever local rank leads.
    let both = us("bcast --nodes 8 --ppn 4 --bytes 64K --algorithm nodes/binary");
    let on_node =
        (0..4).map(|root| us(&format!("bcast --nodes 1 --ppn 4 --bytes 64K --algorithm binomial --root {root}")));
    let then = both - us(&format!("{alone} binary"));
    assert!(on_node.into_iter().any(|us| (us - then).abs() < 1e-6), "{both}");
    // Chunks of both levels overlap.
    let long = "allreduce --nodes 8 --ppn 4 --bytes 16M --algorithm nodes/chain+chain --segment";
    assert!(us(&format!("{long} 256K")) < 0.8 * us(&format!("{long} 16M")));
    // So do slices: what several leaders send at once comes sooner, as long as the node's door is wide enough.
    let sliced = "allreduce --nodes 8 --ppn 4 --bytes 256K --algorithm";
    let leaders = ["nodes/rabenseifner", "nodes-2/rabenseifner", "nodes-4/rabenseifner"];
    let [one, two, four] = leaders.map(|way| us(&format!("{sliced} {way}")));
    assert!(four < two && two < one, "{one} {two} {four}");
    // All ranks of a node in place of one make fewer steps.
    let many = "allreduce --nodes 256 --ppn 16 --bytes 8 --parameters blue-waters --algorithm";
    assert!(us(&format!("{many} nodes/nap")) < 0.6 * us(&format!("{many} nodes/recursive-doubling")));
    for (words, why) in [
        ("allreduce --algorithm nodes/foo", "there is no algorithm `foo`"),
        ("bcast --algorithm nodes/chain --noise rank=0,ms=1", "algorithms of all ranks alone"),
        ("bcast --nodes 4096 --ppn 8 --bytes 1G --algorithm nodes/chain", "longer chunks"),
        ("allreduce --nodes 4 --ppn 4 --algorithm nodes/smp", "the tasks of both levels do not have it among leaders"),
        ("allreduce --nodes 4 --ppn 4 --algorithm nodes/leaders-2", "so no job does this"),
        ("bcast --nodes 4 --ppn 4 --algorithm nodes/ring", "so no job does this"),
        ("allreduce --nodes 4 --ppn 4 --algorithm nodes/ring+chain", "so no job does this"),
    ] {
        let error = model(words).unwrap_err();
        assert!(error.contains(why), "{words}: {error}");
    }
}

#[test]
fn ranks_of_a_node_are_a_list_too() {
    let rows = json("allreduce --nodes 2,4 --ppn 1,4 --algorithm ring");
    let shapes: Vec<[u64; 3]> =
        rows.iter().map(|row| ["nodes", "ppn", "ranks"].map(|key| row[key].as_u64().unwrap())).collect();
    assert_eq!(shapes, [[2, 1, 2], [4, 1, 4], [2, 4, 8], [4, 4, 16]]);
    let alone = json("allreduce --nodes 4 --ppn 4 --algorithm ring");
    assert_eq!(rows[3]["us"], alone[0]["us"]);
    let table = model("allreduce --nodes 2,4 --ppn 1,4 --algorithm ring").unwrap();
    assert!(table.contains("1, 4 ranks a node") && table.contains("ranks each"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with('|')).count(), 2 + 4, "{table}");
}

#[test]
fn a_table_says_what_could_not_be_simulated() {
    let text = model("allreduce --nodes 512 --ppn 8 --bytes 1M --algorithm rabenseifner,ring").unwrap();
    assert!(text.starts_with("allreduce on generic (max-rate), 8 ranks a node"), "{text}");
    assert!(text.contains("- ring: ") && text.contains("too many to simulate"), "{text}");
    let error = model("allreduce --nodes 512 --ppn 8 --bytes 1M --algorithm ring").unwrap_err();
    assert!(error.contains("too many to simulate"), "{error}");
}

#[test]
fn worlds_that_cannot_be_are_refused_before_the_first() {
    for (words, why) in [
        ("bcast --nodes 8,4 --root 4", "--root 4: the ranks are 0 to 3"),
        ("bcast --nodes 2,99999999999", "a simulated world has 1 to"),
        ("allreduce --nodes 4 --bytes 17179869183G", "more than 256G"),
        ("--nodes 4", "<COLL>"),
        ("allreduce -n 8 --nodes 4", "give --nodes N and --ppn P, the ranks of each"),
        ("bcast --verify --svg a.svg", "cannot be used with"),
        ("bcast --verify --nodes 4", "cannot be used with"),
        ("bcast --verify --bytes 1M", "cannot be used with"),
        ("bcast --verify --root 3", "cannot be used with"),
        ("bcast --verify --policy blocking", "cannot be used with"),
        ("bcast --validate --verify", "cannot be used with"),
        ("bcast --set spins=1", "--validate"),
        ("bcast --alloc shared", "--validate"),
        ("bcast --ms 1", "--validate"),
        ("allreduce --nodes 8 --root 1", "--root has no effect on allreduce: it is for bcast, reduce"),
        ("barrier --bytes 8", "--bytes has no effect on barrier: it is for bcast, reduce, allreduce"),
        ("barrier --chunk 8K", "--chunk has no effect on barrier"),
        ("barrier --algorithm nodes/dissemination --segment 8K", "--segment has no effect on barrier"),
        ("allreduce --segment 8K --algorithm ring", "--segment is for tasks of both levels: name one with --algorithm"),
        ("bcast --algorithm chain --noise rank=1,ms=1 --repeats 3", "this one is the same each time"),
        ("bcast --algorithm chain --noise rank=1,ms=1 --policy blocking", "--policy says which of event:SENDS"),
        ("allreduce --validate --bytes 0", "--bytes 0: vectors are of whole elements: give a multiple of 4 from 4 on"),
        ("allreduce --validate --ppn 1", "give --nodes and --ppn from 2 on"),
        ("allreduce --validate --ppn 2,4", "give one number of --nodes, of --ppn and of --bytes"),
        ("allreduce --full", "--validate"),
        ("allreduce --validate --algorithm ring", "cannot be used with"),
        ("allreduce --validate --parameters lassen", "cannot be used with"),
        ("allreduce --validate --model postal", "cannot be used with"),
        ("allreduce --validate --policy event", "cannot be used with"),
        ("allreduce --validate --chunk 64K", "cannot be used with"),
        ("allreduce --validate --segment 256K", "cannot be used with"),
        ("allreduce --validate --root 0", "cannot be used with"),
        ("allreduce --chunk 0", "a piece has at least one byte"),
        ("allreduce --segment 0K", "a piece has at least one byte"),
        ("bcast --algorithm ring", "no bcast by ring"),
        ("allreduce --ppn 0", "no number of nodes or ranks"),
        ("allreduce --validate --bytes 100001", "give a multiple of 4 from 4 on"),
    ] {
        let error = model(words).unwrap_err();
        assert!(error.contains(why), "{words}: {error}");
    }
    assert!(model("--nodes 4").unwrap_err().contains("Usage: han model"));
}

#[test]
fn parameters_are_read_from_a_file_and_wrong_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let text = include_str!("../../../net-fabric/parameters/lassen.toml").replace("\"lassen\"", "\"mine\"");
    std::fs::write(&path, &text).unwrap();
    let path = path.to_str().unwrap();
    assert_eq!(json(&format!("barrier --nodes 4 --parameters {path}"))[0]["parameters"], "mine");
    std::fs::write(path, text.replace("short_below", "shirt_below")).unwrap();
    let error = model(&format!("barrier --parameters {path}")).unwrap_err();
    assert!(error.contains("mine.toml") && error.contains("shirt_below_bytes"), "{error}");
    std::fs::write(path, text.replace("latency_s = 3.67e-7", "latency_s = 1e6")).unwrap();
    let error = model(&format!("barrier --parameters {path}")).unwrap_err();
    assert!(error.contains("short.latency_s = 1000000 is no cost: give seconds from 0 to 1000"), "{error}");
    let error = model("barrier --parameters nowhere.toml").unwrap_err();
    assert!(error.contains("give a file, or generic, blue-waters, lassen"), "{error}");
    let error = model("barrier --parameters lassen --model loggp").unwrap_err();
    assert!(error.contains("loggp"), "{error}");
}

#[test]
fn a_picture_that_cannot_be_written_is_named_after_the_table() {
    for words in ["--bytes 8,1K", "--algorithm binary --noise rank=1,ms=1"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_han"));
        command.args(["model", "bcast", "--svg", "/no/such/folder/a.svg"]).args(words.split(' '));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("han model: cannot write /no/such/folder/a.svg: No such file"), "{said}");
        assert!(output.stdout.starts_with(b"bcast ") && !output.status.success(), "{words}");
    }
}

#[test]
fn a_picture_is_drawn_whoever_reads_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("a.svg");
    for words in ["--bytes 8,1K", "--algorithm binary --noise rank=1,ms=1"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_han"));
        command.args(["model", "bcast"]).args(words.split(' ')).arg("--svg").arg(&picture);
        let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), &*output.stderr), (Some(141), &b""[..]), "{words}");
        assert!(std::fs::read_to_string(&picture).unwrap().ends_with("</svg>\n"), "{words}");
        std::fs::remove_file(&picture).unwrap();
    }
}

#[test]
fn noise_compares_the_policies() {
    let rows = json("bcast --nodes 16 --bytes 4M --algorithm binary --noise rank=6,ms=1");
    let delays: Vec<f64> = rows.iter().map(|row| row["us_mean_delay"].as_f64().unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["repeats"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 1, 1]);
    assert!(rows[2]["policy"].as_str().unwrap().starts_with("event"));
    assert!(delays[2] * 2.0 < delays[1], "event-driven ranks lose less than half: {delays:?}");
    let error = model("bcast --nodes 4,8 --algorithm binary --noise rank=6,ms=1").unwrap_err();
    assert!(error.contains("one number of nodes"), "{error}");
}

#[test]
fn plots_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |arguments: &str| {
        let path = folder.path().join("plot.svg");
        model(&format!("{arguments} --svg {}", path.display())).unwrap();
        std::fs::read_to_string(path).unwrap()
    };
    let lines = draw("allreduce --nodes 2,4 --bytes 8..64 --algorithm smp,recursive-doubling");
    for text in ["4 ranks", "8 bytes", "recursive-doubling", "equation 4", "microseconds"] {
        assert!(lines.contains(text), "{text} in {lines}");
    }
    let ratios = draw("allreduce --nodes 2,4 --ppn 4 --algorithm nap,smp --against nap");
    assert!(ratios.contains("times as long as nap") && !ratios.contains("equation"), "{ratios}");
    assert!(draw("bcast --nodes 8 --bytes 1M --algorithm chain --noise rank=3,ms=1").contains("wait-all, noisy"));
    let bars = draw("bcast --nodes 8 --bytes 1M --algorithm chain --noise uniform=0..1ms,hz=100 --repeats 3");
    assert!(bars.contains("with noise") && bars.contains(" %"));
    let per_node = draw("allreduce --ppn 1..8 --algorithm ring");
    assert!(per_node.contains("2 nodes, 8 bytes") && per_node.contains("ranks of each"), "{per_node}");
    // Said before anything is simulated and printed.
    let mut command = Command::new(env!("CARGO_BIN_EXE_han"));
    let output = command.args(["model", "barrier", "--nodes", "4", "--svg", "unused.svg"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("several numbers") && output.stdout.is_empty());
}
