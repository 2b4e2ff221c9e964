//! What `han explain` says, and that jobs do so.

use serde_json::Value;

use super::{HAN, SHARED_CORES, han, lines, output, output_with};

#[test]
fn explain_names_the_choice_and_the_setting_that_decided() {
    let explain = |arguments: &[&str], set: &str| {
        let output = han().arg("explain").args(arguments).env("HAN_SET", set).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let barrier = explain(&["barrier", "-n", "2"], "");
    assert!(barrier.starts_with("barrier, 2 ranks") && barrier.contains("trees are for 32 ranks"), "{barrier}");
    let text = explain(&["bcast", "1M", "-n", "8"], "assume_own_cores=0,chunk_bytes=8192");
    for expected in ["8 ranks with shared cores: sm/direct", "128 of 8192 bytes: chunk_bytes was set", "han_malloc"] {
        assert!(text.contains(expected), "{text}");
    }
    let forced = explain(&["allreduce", "1M", "-n", "8"], "form=direct");
    assert!(forced.contains("sm/direct") && forced.contains("form=direct was set"), "{forced}");
    let large = explain(&["bcast", "1M", "-n", "64"], "topology=pack:2 l3:4 core:8,assume_own_cores=1");
    for expected in ["64 ranks with a core each: sm/tree", "along l3 8 groups of 8; socket 2 groups of 4; node"] {
        assert!(large.contains(expected), "{large}");
    }
    let off = explain(&["reduce", "1M", "-n", "2", "--alloc", "shared"], "methods=cico");
    assert!(off.contains("sm/direct") && off.contains("needs the method shared, which is off"), "{off}");

    let json = explain(&["allreduce", "4M", "-n", "3", "--alloc", "shared", "--json"], SHARED_CORES);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["choice"], &json["bytes"]), (&"solo/slice".into(), &(4 << 20).into()));
    assert_eq!((&json["points"][0]["what"], &json["points"][0]["value"]), (&"form".into(), &"slice".into()));
    let joint = explain(&["bcast", "1M", "-n", "2"], "assume_own_cores=1");
    for expected in
        ["2 ranks with a core each: solo/joint", "trials decide between that and direct", "copied by the kernel"]
    {
        assert!(joint.contains(expected), "{joint}");
    }
    for (how, choice) in
        [(&[][..], "sm/chain"), (&["--non-commutative"], "sm/slice"), (&["--dtype", "bf16"], "sm/slice")]
    {
        let said = explain(&[&["allreduce", "1M", "-n", "8"], how].concat(), SHARED_CORES);
        assert!(said.contains(choice) && said.contains("in rank order") != how.is_empty(), "{said}");
    }
    let over = ["allreduce", "16M", "-n", "2", "--nodes", "2", "--set", "nodes_form=flat"];
    assert_ne!(explain(&over, ""), explain(&[&over[..], &["--non-commutative"]].concat(), ""));
    assert!(output(&["explain", "bcast"]).unwrap_err().contains("BYTES"));
    assert!(output(&["explain", "gather", "8"]).unwrap_err().contains("allreduce"));
}

#[test]
fn explain_takes_settings_as_bench_does() {
    let explain = |words: &[&str]| output_with("form=tree", &[&["explain"], words].concat());
    // What stands on the command line comes last, and goes for the trial of the methods as well.
    let text = explain(&["bcast", "1M", "-n", "2", "--set", "form=slice,methods=cico"]).unwrap();
    let why = "form=slice was set, but only reductions have slices; direct is the next that can carry this";
    assert!(text.contains("sm/direct") && text.contains(why), "{text}");
    let over_nodes = ["allreduce", "1M", "-n", "8", "--nodes", "4", "--set", "leaders=1"];
    assert!(
        explain(&[&over_nodes[..], &["--set", "inter_algorithm=rabenseifner"]].concat())
            .unwrap()
            .contains("nodes/rabenseifner")
    );
    let two = ["allreduce", "4M", "-n", "8", "--nodes", "2", "--plan", "--set", "leaders=2"];
    let two = explain(&two).unwrap();
    for expected in
        ["on both levels: nodes-2/", "leaders is 2: the setting says so", "iteration | 0.0 0.1 1.0", "sbiasr(1.0)"]
    {
        assert!(two.contains(expected), "{expected}: {two}");
    }
    // The second figure is that of the setting which it names.
    for (bytes, cores) in [("8M", "0"), ("4M", "1")] {
        let of = |set: &[&str]| {
            let cores = format!("assume_own_cores={cores}");
            let plan = ["allreduce", bytes, "-n", "4", "--nodes", "2", "--plan", "--set", &cores];
            explain(&[&plan[..], set].concat()).unwrap()
        };
        let (both, split) = (of(&[]), of(&["--set", "inter_allreduce_algorithm=ir+ib"]));
        let (_, second) = both.split_once("the same with HAN_SET=inter_allreduce_algorithm=ir+ib").unwrap();
        let (_, second) = second.split_once('\n').unwrap();
        assert!(second.len() > 100 && split.ends_with(second), "{both}\n{split}");
    }
    let nap = ["--plan", "--set", "inter_allreduce_algorithm=nap"];
    let nap = |ranks| explain(&[&["allreduce", "8", "--nodes", "3", "-n", ranks], &nap[..]].concat()).unwrap();
    for expected in ["on both levels: nodes/nap", "algorithm is nap: the setting says so", "sa(0)", "ib(0)", "sr(0)"] {
        assert!(nap("12").contains(expected), "{expected}: {}", nap("12"));
    }
    assert!(!nap("9").contains("sr(0)"), "all ranks of a node have a part: {}", nap("9"));
    assert!(nap("7").contains("on both levels: nodes/nap"), "nodes of 3, 2 and 2 ranks: {}", nap("7"));
    assert!(nap("5").contains("nap is set, but a node has one rank alone"), "{}", nap("5"));
    let short = explain(&["allreduce", "8", "-n", "8", "--nodes", "2", "--set", "leaders=2"]).unwrap();
    assert!(short.contains("leaders is 1: each leads a slice of whole lines"), "{short}");
    assert!(explain(&["bcast", "8", "--set", "chunk=1"]).unwrap_err().contains("valid keys are "));
    assert!(explain(&["bcast", "8", "--set", "chunk"]).unwrap_err().contains("a setting is KEY=VALUE"));
}

/// Each option that says something of a node's memory shows in what is said of it, where both levels are used.
#[test]
fn explain_tells_what_nodes_do_in_their_memory() {
    let explain = |words: &[&str]| {
        let of = ["explain", "allreduce", "1M", "-n", "4", "--nodes", "2"];
        output_with(SHARED_CORES, &[&of, words].concat()).unwrap()
    };
    let plain = explain(&[]);
    let reduce =
        "in memory, sr on nodes 0-1: reduce of 524288 bytes in private buffers, 2 ranks with shared cores: sm/slice";
    let bcast =
        "in memory, sb on nodes 0-1: bcast of 524288 bytes in private buffers, 2 ranks with shared cores: sm/direct";
    for expected in [reduce, bcast, "peers cannot map private buffers", "(changed by chunk_bytes)"] {
        assert!(plain.contains(expected), "{expected}: {plain}");
    }
    for (words, expected) in [
        (&["--alloc", "shared"][..], "in shared buffers, 2 ranks with shared cores: solo/slice"),
        (&["--in-place"], "in private buffers, in place, 2 ranks"),
        (&["--set", "intra_module=solo"], "copied by the kernel: single_copy=by_kernel"),
        (&["--set", "form=direct"], "direct: form=direct was set"),
        (&["--alloc", "shared", "--set", "single_copy=never"], "through cells: single_copy=never was set"),
    ] {
        let said = explain(words);
        assert!(said.contains(expected) && !said.contains("have no effect"), "{expected}: {said}");
        let flat = explain(&[words, &["--set", "nodes_form=flat"]].concat());
        assert!(flat.contains("these have no effect: ") && !flat.contains("in memory"), "{words:?}: {flat}");
    }
    let flat = explain(&["--set", "nodes_form=flat,form=direct", "--alloc", "shared", "--in-place", "--json"]);
    assert_eq!(lines(&flat)[0]["no_effect"], serde_json::json!(["--alloc shared", "--in-place", "form=direct"]));
    assert!(!explain(&["--set", "nodes_form=flat"]).contains("have no effect"));

    // A leader that is not the root receives to memory of the library's own, which peers do not map.
    let reduce = |leaders: &str| {
        let of =
            ["explain", "reduce", "1M", "-n", "6", "--nodes", "2", "--alloc", "shared", "--json", "--set", leaders];
        lines(&output_with(SHARED_CORES, &of).unwrap()).remove(0)
    };
    let by_two = reduce("leaders=2");
    let on_nodes = by_two["in_memory"].as_array().unwrap().iter().map(|task| (&task["nodes"], &task["choice"]));
    let expected = [(&serde_json::json!([0]), &"solo/slice".into()), (&serde_json::json!([0, 1]), &"sm/slice".into())];
    assert_eq!(on_nodes.collect::<Vec<_>>(), expected, "so does a leader beside the root: {by_two}");
    let reduce = &reduce("leaders=1");
    let [of_root, other] = reduce["in_memory"].as_array().unwrap().as_slice() else { panic!("{reduce}") };
    assert_eq!((&of_root["nodes"], &of_root["choice"]), (&serde_json::json!([0]), &"solo/slice".into()));
    assert_eq!((&other["nodes"], &other["choice"]), (&serde_json::json!([1]), &"sm/slice".into()));
    assert_eq!(other["points"].as_array().unwrap().last().unwrap()["value"], "solo/slice", "{other}");
    // The larger blocks of ranks come first.
    let blocks = ["explain", "barrier", "-n", "10", "--nodes", "4", "--json"];
    let blocks = &lines(&output_with(SHARED_CORES, &blocks).unwrap())[0]["in_memory"][0];
    assert_eq!((&blocks["ranks"], &blocks["nodes"]), (&3.into(), &serde_json::json!([0, 1])));
    // What is left for the last chunk goes beside a flag, and a rank that is alone on its node does nothing in memory.
    let rest = ["explain", "bcast", "524290", "-n", "3", "--nodes", "2", "--dtype", "i8", "--json"];
    let rest = &lines(&output_with(SHARED_CORES, &rest).unwrap())[0];
    let said = rest["in_memory"].as_array().unwrap().iter();
    let said: Vec<_> = said.map(|task| (&task["nodes"], &task["bytes"], &task["choice"])).collect();
    let nodes = &serde_json::json!([0]);
    let expected = [(nodes, &(512 << 10).into(), &"sm/direct".into()), (nodes, &2.into(), &"sm/flat".into())];
    assert_eq!(said, expected, "{rest}");
}

#[test]
fn info_and_explain_tell_misspelled_variables() {
    for words in
        [&["info"][..], &["info", "--json"], &["explain", "bcast", "8"], &["explain", "barrier", "--nodes", "2"]]
    {
        let output = han().args(words).env("HAN_WATCHDGO", "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, "han: HAN_WATCHDGO is set, but han does not read it: is HAN_WATCHDOG meant?\n", "{words:?}");
        assert!(output.status.success(), "{words:?}");
    }
}

/// Both forms of figure 5.14, and 5.6, where nothing but the nodes is given.
#[test]
fn the_plan_of_nodes_needs_no_number_of_ranks() {
    let bcast = output(&["explain", "bcast", "4M", "--nodes", "2", "--plan"]).unwrap();
    assert!(bcast.contains("by 4 ranks on 2 nodes") && bcast.contains("| sbib(1)\n"), "{bcast}");
    let allreduce = output(&["explain", "allreduce", "4M", "--nodes", "2", "--plan"]).unwrap();
    for expected in ["sbiasr(2)\n", "inter_allreduce_algorithm=ir+ib", "sbibirsr(3)\n", "sbibir("] {
        assert!(allreduce.contains(expected), "{expected}: {allreduce}");
    }
}

/// The choice that is explained is the one that a job makes.
#[test]
fn explain_tells_what_bench_does() {
    for (collective, bytes, alloc) in [
        ("bcast", "64K", "shared"),
        ("reduce", "16K", "private"),
        ("reduce", "64K", "shared"),
        ("allreduce", "1K", "private"),
    ] {
        let said =
            output_with(SHARED_CORES, &["explain", collective, bytes, "-n", "3", "--alloc", alloc, "--json"]).unwrap();
        let arguments = ["bench", collective, "-n", "3", "--min", bytes, "--max", bytes, "--alloc", alloc, "--ms", "1"];
        let done = output_with(SHARED_CORES, &[&arguments[..], &["--json"]].concat()).unwrap();
        assert_eq!(lines(&said)[0]["choice"], lines(&done)[0]["choice"], "{collective} {bytes} {alloc}");
    }
}

/// Over nodes too, whatever machine is described, with the network that the job has.
#[test]
fn explain_tells_what_a_job_over_nodes_does() {
    for (set, collective, bytes, root) in [
        ("topology=pack:2 core:4", "allreduce", "8", None),
        ("topology=pack:2 core:4", "bcast", "1M", Some("3")),
        ("assume_own_cores=1", "allreduce", "8", None),
        ("nodes_form=flat,wire_mbit_s=100", "reduce", "32K", Some("7")),
    ] {
        let job = ["-n", "8", "--nodes", "4"];
        let root: &[&str] = &root.map_or_else(Vec::new, |root| vec!["--root", root]);
        let said = output_with(set, &[&["explain", collective, bytes, "--json"], &job[..], root].concat()).unwrap();
        let words = ["bench", collective, "--dtype", "f64", "--min", bytes, "--max", bytes, "--ms", "1", "--json"];
        let done = output_with(set, &[&words, &job[..], root].concat()).unwrap();
        assert_eq!(lines(&said)[0]["choice"], lines(&done)[0]["choice"], "{set} {collective} {bytes}");
        let network = lines(&said)[0]["points"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&network["what"], &network["change"]), (&"network".into(), &"HAN_PROVIDER".into()));
        assert!(network["because"].as_str().unwrap().contains("this host alone: loopback"), "{network}");
    }
    // Behind a prefix the other nodes are elsewhere.
    let words = ["explain", "bcast", "1M", "--nodes", "2", "--node-exec", "env NODE={node}"];
    let said = output(&words).unwrap();
    assert!(!said.contains("loopback\n") && said.contains("by 4 ranks on 2 nodes"), "{said}");
    assert!(
        output(&[&words[..6], &["no-such-program"]].concat()).unwrap_err().contains("no-such-program: No such file")
    );
}

#[test]
fn explain_takes_many_nodes() {
    let said = output(&["explain", "allreduce", "1M", "--nodes", "65536"]).unwrap();
    assert!(said.contains("in memory, sb on nodes 0-65535: bcast"), "{said}");
    let error = output(&["explain", "allreduce", "1G", "--nodes", "65536", "--plan"]).map(drop).unwrap_err();
    assert!(error.contains("--plan: about ") && error.contains("longer chunks or fewer ranks make fewer"), "{error}");
}

#[test]
fn explain_knows_the_root() {
    let plan = |root: &str| {
        let words = ["explain", "reduce", "1M", "--nodes", "2", "--plan", "--root", root];
        output_with("segment_bytes=262144", &words).unwrap()
    };
    assert_ne!(plan("0"), plan("1"));
    let large = ["topology=pack:2 l3:4 core:8,assume_own_cores=1", "form=tree"];
    for (set, expected) in large.into_iter().zip(["from rank 9 along l3", "from rank 9"]) {
        let said = output_with(set, &["explain", "bcast", "64", "-n", "64", "--root", "9"]).unwrap();
        assert!(said.contains(expected), "{said}");
    }
    for (words, why) in [
        (["explain", "bcast", "8", "-n", "4", "--root", "4"], "--root 4: the ranks are 0 to 3"),
        (["explain", "allreduce", "8", "-n", "4", "--root", "0"], "--root has no effect on allreduce: it is for bcast"),
    ] {
        assert!(output(&words).unwrap_err().contains(why), "{words:?}");
    }
}

#[test]
fn options_without_effect_are_refused() {
    for (words, why) in [
        ("explain barrier --dtype f32", "--dtype has no effect on barrier: it is for bcast, reduce, allreduce"),
        ("explain barrier --alloc shared", "--alloc shared has no effect on barrier"),
        ("explain barrier --in-place", "--in-place has no effect on barrier"),
        ("explain bcast 8 --in-place", "--in-place has no effect on bcast: it is for reduce, allreduce"),
        ("explain bcast 8 --non-commutative", "--non-commutative has no effect on bcast"),
        ("bench bcast --cold --style loop", "leave --style loop out"),
        ("run -n 1 -- HAN bench bcast --node-exec env", "--node-exec env: the launcher has started the ranks"),
        ("run -n 2 -- HAN tune --node-exec env", "--node-exec env: the launcher has started the ranks"),
    ] {
        let words: Vec<&str> = words.split(' ').map(|word| if word == "HAN" { HAN } else { word }).collect();
        let said = output(&words).unwrap_err();
        assert!(said.contains(why), "{words:?}: {said}");
    }
    output(&["bench", "barrier,bcast", "-n", "2", "--root", "1", "--max", "4", "--ms", "1"]).unwrap();
}

/// A script may ask about every collective and every length: without `--dtype` there is one of which a vector has a whole number.
#[test]
fn explain_takes_every_length_of_every_collective() {
    for coll in ["barrier", "bcast", "reduce", "allreduce"] {
        for nodes in ["1", "2"] {
            for bytes in ["0", "1", "2", "10"] {
                let said = output(&["explain", coll, bytes, "-n", "2", "--nodes", nodes]).unwrap();
                assert!(said.starts_with(coll), "{coll} {bytes}: {said}");
            }
        }
    }
    for (bytes, nodes, expected) in [
        ("1", "1", "datatype  u8: f32 has 4 bytes, of which 1 is no multiple"),
        ("10", "1", "datatype  u16: f32 has 4 bytes, of which 10 is no multiple"),
        ("1", "2", "datatype is u8: f32 has 4 bytes, of which 1 is no multiple (--dtype=...)"),
    ] {
        let said = output(&["explain", "allreduce", bytes, "-n", "2", "--nodes", nodes]).unwrap();
        assert!(said.contains(expected), "{said}");
    }
    let json = output(&["explain", "reduce", "6", "-n", "2", "--json"]).unwrap();
    let points = lines(&json)[0]["points"].as_array().unwrap().clone();
    assert!(points.iter().any(|point| point["what"] == "datatype" && point["value"] == "u16"), "{json}");
    let barrier = han().args(["explain", "barrier", "8", "-n", "2", "--json"]).output().unwrap();
    let note = "han explain: barrier has no data, so its length of 8 bytes has no effect\n";
    assert_eq!(String::from_utf8_lossy(&barrier.stderr), note);
    assert_eq!(lines(&String::from_utf8(barrier.stdout).unwrap())[0]["bytes"], 0);
}

#[test]
fn explain_refuses_lengths_that_no_call_has() {
    for (words, why) in [
        (
            &["reduce", "3", "--dtype", "f32"][..],
            "3 bytes are no whole number of f32, which has 4: give a multiple, or another --dtype",
        ),
        (&["allreduce", "24", "--dtype", "complex_f64", "--nodes", "2"], "24 bytes are no whole number of complex_f64"),
    ] {
        let said = output(&[&["explain"], words].concat()).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    assert!(output(&["explain", "bcast", "3"]).unwrap().starts_with("bcast of 3 bytes"));
}
