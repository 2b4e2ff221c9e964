//! `han tune`, `HAN_TUNING` and `han model --validate` on real jobs over two virtual nodes of this machine, in spaces that
//! are as small as can be. What was measured is not looked at: only whether it was, and whether it is used.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

#[allow(dead_code)] // shared with the tests of `han run`, which use all of it
#[path = "../run/harness.rs"]
mod harness;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use han::select::Inter;
use han::tune::Source;
use han::{Collective, Context, Operator};
use harness::{Finished, Job, eventually, name};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

const ROLE: &str = "HAN_TEST_ROLE";
const TWO_BY_TWO: [&str; 4] = ["-n", "4", "--nodes", "2"];

/// `han WORDS`.
fn han(words: &[&str]) -> Job {
    let mut command = Command::new(env!("CARGO_BIN_EXE_han"));
    command.args(words);
    Job::of(command)
}

fn tune(out: &Path, words: &[&str]) -> Job {
    quick(&[&["--out", out.to_str().unwrap()], words].concat())
}

fn quick(words: &[&str]) -> Job {
    han(&[&["tune", "--ms", "1", "--quick"], &TWO_BY_TWO, words].concat())
}

/// `han run` of ranks that do a bcast and an allreduce of 1 KiB, and say what was chosen.
fn ranks(tuning: &str) -> Job {
    let own = env::current_exe().unwrap();
    let program = [own.to_str().unwrap(), "play_a_role", "--exact", "--ignored", "--nocapture", "--quiet"];
    let job = Job::new(&[&TWO_BY_TWO[..], &["--"], &program].concat());
    job.env(ROLE, "choices").env("HAN_TUNING", tuning)
}

#[test]
#[ignore = "a rank of other tests: they start it under the launcher"]
fn play_a_role() {
    match env::var(ROLE).as_deref() {
        Ok("choices") => {}
        Ok("settings") => {
            settings();
            return;
        }
        _ => return,
    }
    let context = Context::init().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(3)
    });
    let world = context.world();
    let mut buffer = vec![1.0_f32; 256];
    let choice = world.choice(&han::Call::bcast(&mut buffer, 0));
    world.bcast(&mut buffer, 0).unwrap();
    world.allreduce_in_place(&mut buffer, Operator::Sum).unwrap();
    assert!(buffer.iter().all(|value| value.to_bits() == 4.0_f32.to_bits()));
    let part = world.split(Some(0), 0).unwrap().unwrap();
    part.barrier().unwrap();
    println!("bcast by {choice}");
    if world.rank() == 0 {
        println!("{}", world.describe());
    }
    context.finalize().unwrap();
    std::process::exit(0);
}

fn file(bcast: &str) -> String {
    format!(
        "version = 1\nmachine = \"this\"\n[[shape]]\nnodes = 2\nranks_per_node = 2\nprovider = \"any\"\n\
         date = \"2026-01-31\"\nmethod = \"by hand\"\nbcast = [\n{{ bytes = 1024, us = 5.5, settings = {bcast} }},\n]\n"
    )
}

#[test]
fn built_in_rules_are_compared_with_the_network_alone() {
    let words = ["--against-flat", "--collectives", "bcast,allreduce", "--min", "64", "--max", "256"];
    let done = quick(&words).finish();
    let slower = done.stdout.lines().find_map(|line| line.split_once("network at ")?.1.strip_suffix(" of 6 points"));
    let slower: usize = slower.unwrap_or_else(|| panic!("{done:#?}")).parse().unwrap();
    assert_eq!(done.code == 0, slower == 0, "{done:#?}");
    assert_eq!(done.stdout.matches("| allreduce ").count(), 3, "{done:#?}");
    tune(Path::new("unused.toml"), &words).finish().expect(2, &["cannot be used with '--against-flat'"]);
}

#[test]
fn a_search_writes_what_ranks_then_use() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuning.toml");
    let found = tune(&out, &["--min", "2K", "--max", "4K", "--collectives", "barrier,bcast,reduce"]).start().finish();
    found.expect(0, &[]);
    assert!(found.stdout.contains("use HAN_TUNING="), "{}", found.stdout);
    assert!(!found.stdout.contains("@progress"), "{}", found.stdout);
    let shape = &Source::read(&out).unwrap().tuning.shapes[0];
    assert_eq!((shape.nodes, shape.ranks_per_node, shape.points.len()), (2, 2, 1 + 2 + 2));
    let lengths = shape.points.iter().filter(|point| point.collective == Collective::Bcast).map(|point| point.bytes);
    assert_eq!(lengths.collect::<Vec<_>>(), [2 << 10, 4 << 10]);
    assert!(!folder.path().join("tuning.toml.partial").exists());
    ranks(out.to_str().unwrap()).start().finish().expect(0, &[]);
}

#[test]
fn what_is_set_holds_while_measuring() {
    let folder = tempfile::tempdir().unwrap();
    let [out, trace] = ["tuning.toml", "trace.json"].map(|name| folder.path().join(name));
    let words = ["--min", "16K", "--max", "16K", "--collectives", "bcast", "--set"];
    let with = |set: &str| {
        let job = tune(&out, &[&words[..], &[set]].concat()).env("HAN_TRACE", trace.to_str().unwrap());
        job.start().finish()
    };
    with("trace_spans=64").expect(0, &[]);
    let spans = fs::read_to_string(&trace).unwrap().matches("\"ph\":\"X\"").count();
    assert!((1..=4 * 64).contains(&spans), "{spans} spans of 4 ranks");
    let drops = [&words[..], &["intra_module=solo", "--node-exec", "env -i"]].concat();
    tune(&out, &drops).start().finish().expect(0, &[]);
    // Each stands beside the other, for jobs that are like it.
    let sets: Vec<String> = Source::read(&out).unwrap().tuning.shapes.into_iter().map(|shape| shape.set).collect();
    assert_eq!(sets, ["", "intra_module=solo"]);
    with("inter_bcast_algorithm=linear").expect(1, &["inter_bcast_algorithm=linear is set", "leave it out"]);
}

#[test]
fn reductions_that_must_not_depend_on_the_algorithm_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuning.toml");
    let search = |collective: &str| {
        let words = ["--min", "1K", "--max", "1K", "--collectives", collective];
        tune(&out, &words).env("HAN_REPRODUCIBLE", "1").start().finish()
    };
    search("bcast,reduce").expect(1, &["HAN_REPRODUCIBLE=1 is set", "leave it out"]);
    assert!(!out.exists());
    search("bcast").expect(0, &[]);
    let words = ["model", "allreduce", "--validate", "--bytes", "1K", "--ms", "1"];
    let refused = han(&words).env("HAN_REPRODUCIBLE", "1").start().finish();
    refused.expect(1, &["HAN_REPRODUCIBLE=1 is set"]);
}

#[test]
fn a_job_of_another_shape_is_not_compared_with_the_models() {
    let validate = |launcher: &[&str]| {
        let model = ["--", env!("CARGO_BIN_EXE_han"), "model", "bcast", "--validate", "--bytes", "1K", "--ms", "1"];
        Job::new(&[launcher, &model].concat()).finish()
    };
    let other = "this job is one of 3 nodes with 2 ranks each: --nodes 2 and --ppn 2 ask about another";
    validate(&["-n", "6", "--nodes", "3"]).expect(1, &[other]);
    validate(&["-n", "4"]).expect(1, &["4 ranks on 1 nodes: several nodes with as many ranks each are needed"]);
}

#[test]
fn what_was_measured_elsewhere_or_not_whole_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let explain = |text: &str| {
        fs::write(&path, text).unwrap();
        let words = ["explain", "bcast", "1K", "-n", "4", "--nodes", "2"];
        let said = han(&words).env("HAN_TUNING", path.to_str().unwrap()).start().finish();
        said.expect(0, &[]);
        said
    };
    let measured = file("{ nodes_form = \"flat\" }");
    let said = explain(&measured);
    assert!(said.stderr.contains("mine.toml was measured on \"this\", and this is \""), "{said:?}");
    let here = measured.replace("\"this\"", &format!("{:?}", han::machine::in_words()));
    let said = ranks_near(path.to_str().unwrap(), &here.replace("date", "set = \"intra_module=solo\"\ndate"));
    let told = "mine.toml was measured under intra_module=solo, and this job runs under no settings: ";
    assert_eq!(said.stderr.matches(told).count(), 1, "{said:?}");
    let said = explain(&here.replace("us = 5.5,", "us = 5.5, estimated = true,"));
    assert!(!said.stderr.contains("was measured on"), "{said:?}");
    assert!(said.stdout.contains("tuning is used: estimated 5.5 us for 1024 bytes"), "{said:?}");
    assert!(said.stdout.contains("tuned: estimated to be best"), "{said:?}");
}

#[test]
fn tasks_are_measured_and_all_searches_compared() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuning.toml");
    let words = ["--min", "128K", "--max", "128K", "--collectives", "bcast,allreduce", "--compare"];
    let compared = tune(&out, &words).start().finish();
    compared.expect(0, &[]);
    for part in ["exhaustive", "heuristic", "task+heuristics", "of exhaustive", "worst loss", "built-in rules: "] {
        assert!(compared.stdout.contains(part), "{part} is missing in {}", compared.stdout);
    }
    assert_eq!(Source::read(&out).unwrap().tuning.shapes[0].points.len(), 2);
}

#[test]
fn a_measurement_that_is_killed_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuning.toml");
    // Ranks that write nothing, and so do not notice that nobody reads.
    let idle = folder.path().join("idle");
    fs::write(&idle, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&idle, fs::Permissions::from_mode(0o755)).unwrap();
    let idle = ["--node-exec", idle.to_str().unwrap()];
    let noise = [&["bench", "bcast", "--noise", "rank=1,ms=1"], &TWO_BY_TWO[..], &idle].concat();
    for job in [tune(&out, &idle), han(&noise)] {
        let job = job.start();
        let is_idle = |pid: &Pid| name(*pid) == "sleep";
        eventually("its ranks are there", || job.processes().iter().filter(|pid| is_idle(pid)).count() == 4);
        job.signal(Signal::SIGKILL);
        eventually("its job ends", || job.processes().is_empty());
    }
}

#[test]
fn an_interrupted_search_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuning.toml");
    let words = ["--min", "512", "--max", "1K", "--collectives", "bcast", "--method", "exhaustive"];
    let journal = folder.path().join("tuning.toml.partial");
    // A search that cannot write what it has found.
    let in_the_way = folder.path().join("tuning.toml.next");
    fs::create_dir(&in_the_way).unwrap();
    tune(&out, &words).start().finish().expect(1, &["tuning.toml.next: "]);
    fs::remove_dir(&in_the_way).unwrap();
    tune(&out, &words).start().finish().expect(1, &["--resume goes on with it"]);
    let other = ["--min", "512", "--max", "4K", "--collectives", "bcast", "--resume"];
    tune(&out, &other).start().finish().expect(1, &["it has --max 1024, this one --max 4096"]);
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, b"\xff\n").unwrap();
    tune(&out, &[&words[..], &["--resume"]].concat()).start().finish().expect(1, &["tuning.toml.partial: "]);
    fs::write(&journal, &text).unwrap();
    // Half of what was measured, the last of it quicker than anything can be.
    let kept: Vec<&str> = text.lines().take(2 + (text.lines().count() - 2) / 2).collect();
    let (last, others) = kept.split_last().unwrap();
    let quick = last.split_once(" s: ").unwrap().0;
    let next = text.lines().nth(kept.len()).unwrap();
    // On a full disk a line is cut short.
    let next = &next[..next.len() - 1];
    fs::write(&journal, format!("{}\n{quick} s: 0.001\n{next}", others.join("\n"))).unwrap();
    fs::create_dir(&in_the_way).unwrap();
    let resumed = tune(&out, &[&words[..], &["--resume"]].concat()).start().finish();
    resumed.expect(1, &["tuning.toml.next: "]);
    assert!(!resumed.stderr.contains("anew"), "{resumed:#?}");
    fs::remove_dir(&in_the_way).unwrap();
    tune(&out, &[&words[..], &["--resume"]].concat()).start().finish().expect(0, &[]);
    assert!(!journal.exists());
    let points = &Source::read(&out).unwrap().tuning.shapes[0].points;
    let us: Vec<f64> = points.iter().map(|point| point.us).collect();
    assert_eq!(us.len(), 2);
    assert_eq!(us.iter().filter(|us| (**us - 0.001).abs() < 1e-9).count(), 1, "{us:?}");
}

#[test]
fn a_search_has_its_journal_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuning.toml");
    let words = ["--min", "512", "--max", "4K", "--collectives", "bcast", "--method", "exhaustive", "--ms", "60"];
    let search = |words: &[&str]| {
        let own = out.to_str().unwrap();
        han(&[&["tune", "--quick", "--out", own], &TWO_BY_TWO[..], words].concat()).start()
    };
    let first = search(&[&words[..], &["--resume"]].concat());
    let journal = folder.path().join("tuning.toml.partial");
    eventually("something is measured", || fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() > 2));
    for resumes in [&[][..], &["--resume"]] {
        search(&[&words[..], resumes].concat()).finish().expect(1, &["goes on now: give another --out"]);
    }
    let first = first.finish();
    first.expect(0, &["tuning.toml.partial is not there: the search starts anew"]);
    assert!(out.exists() && !journal.exists());
}

/// What ranks say under a file with this text.
fn ranks_near(name: &str, text: &str) -> Finished {
    fs::write(name, text).unwrap();
    let choices = ranks(name).start().finish();
    choices.expect(0, &[]);
    choices
}

#[test]
fn files_are_used_and_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let name = path.to_str().unwrap();
    let flat = file("{ nodes_form = \"flat\", inter_algorithm = \"binary\" }");
    fs::write(&path, &flat).unwrap();
    let choices = ranks(name).env("HAN_SET", "segment_bytes=1048576").start().finish();
    choices.expect(0, &[]);
    assert_eq!(choices.stdout.matches("bcast by net/binary").count(), 4, "{}", choices.stdout);
    assert!(choices.stdout.contains(&format!("tuning: {name} (contents ")), "{}", choices.stdout);
    // A few lengths with their reasons, of which none is near what was measured.
    for (line, why) in [
        ("  barrier: nodes/", "; "),
        ("  bcast of 8: nodes/", "; "),
        ("  reduce of 65536: nodes/", "; "),
        ("  allreduce of 4194304: nodes/", " in chunks of 1048576, the setting says so; "),
    ] {
        let said = choices.stdout.lines().find(|said| said.starts_with(line));
        assert!(said.is_some_and(|said| said.contains(why)), "{line}: {}", choices.stdout);
    }
    let near = ranks_near(name, &flat.replace("1024", "16")).stdout;
    assert!(
        near.contains("  bcast of 8: net/binary, tuned: measured to be best; tuned: measured to be best"),
        "{near}"
    );
    fs::write(&path, &flat).unwrap();
    let explain_bytes = |bytes: &str, set: &str| {
        let words = ["explain", "bcast", bytes, "-n", "4", "--nodes", "2"];
        let said: Finished = han(&words).env("HAN_TUNING", name).env("HAN_SET", set).start().finish();
        said.expect(0, &[]);
        said.stdout
    };
    let explain = |set: &str| explain_bytes("2K", set);
    let said = explain("");
    assert!(said.contains("algorithm is binary: tuned: measured to be best"), "{said}");
    assert!(said.contains("tuning is used: measured 5.5 us for 1024 bytes by 2 x 2 ranks"), "{said}");
    let said = explain("nodes_form=hierarchical");
    assert!(said.contains("tuning is not used: nodes_form=hierarchical is set"), "{said}");
    let said = explain("inter_bcast_algorithm=chain");
    assert!(said.contains("algorithm is chain: the setting says so (HAN_SET=inter_bcast_algorithm=...)"), "{said}");
    assert!(said.contains("tuning is not used: inter_bcast_algorithm=chain is set"), "{said}");
    // As one chunk was written before: longer than the vector. Other vectors are not cut into such pieces.
    fs::write(&path, file("{ nodes_form = \"hierarchical\", segment_bytes = 4096 }")).unwrap();
    let near = explain_bytes("4K", "");
    assert!(near.contains("segment_bytes is 4096: tuned: one chunk was measured to be best"), "{near}");
    assert!(near.contains("the nearest to 4096 bytes"), "{near}");
    let far = explain_bytes("64M", "");
    assert!(far.contains("tuning is not used: nothing nearer to 67108864 bytes than 1024 was measured"), "{far}");
    assert!(!far.contains("segment_bytes is 4096"), "{far}");
}

#[test]
fn ranks_with_other_files_are_told_of_both() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["0", "1"].map(|node| folder.path().join(node).to_str().unwrap().to_owned());
    fs::write(&paths[0], file("{}")).unwrap();
    fs::write(&paths[1], file("{ inter_policy = \"wait_all\" }")).unwrap();
    let own = env::current_exe().unwrap();
    let script = format!(
        "HAN_TUNING={}/$((PMI_RANK / 2)) exec {} play_a_role --exact --ignored --nocapture --quiet",
        folder.path().display(),
        own.display()
    );
    let refused = Job::script(&TWO_BY_TWO, &script).env(ROLE, "choices").start().finish();
    refused.expect(3, &["would choose differently: rank 0 by ", "rank 2 by ", &paths[0], &paths[1], "HAN_TUNING"]);
    // On one node as well, although nothing is chosen by it there.
    let on_one = Job::script(&["-n", "2"], &script.replace("PMI_RANK / 2", "PMI_RANK"));
    let refused = on_one.env(ROLE, "choices").start().finish();
    refused.expect(3, &["would choose differently: rank 0 by ", "rank 1 by ", &paths[0], &paths[1], "HAN_TUNING"]);
    // The same contents may lie elsewhere.
    fs::copy(&paths[0], &paths[1]).unwrap();
    Job::script(&TWO_BY_TWO, &script).env(ROLE, "choices").start().finish().expect(0, &[]);
    fs::write(&paths[0], file("{ inter_polity = \"wait_all\" }")).unwrap();
    ranks(&paths[0]).start().finish().expect(3, &["HAN_TUNING: ", "line 10: unknown key \"inter_polity\""]);
}

/// Ranks that set a communicator's choices, alike and not.
fn settings() {
    let context = Context::init().unwrap();
    let part = context.world().dup().unwrap();
    let choice = |part: &han::Communicator| part.choice(&han::Call::bcast(&mut [0.0_f32; 8], 0));
    let before = choice(&part);
    let mut own = Inter::default();
    own.set("nodes_form", "flat").unwrap();
    own.set("inter_algorithm", "scatter-ring").unwrap();
    part.choose_by(Some(own)).unwrap();
    assert_eq!(choice(&part), "net/scatter-ring");
    assert_eq!(choice(context.world()), before);
    if part.rank() == 1 {
        own.set("inter_algorithm", "chain").unwrap();
    }
    let refused = part.choose_by(Some(own)).unwrap_err().to_string();
    assert!(refused.contains("choose differently"), "{refused}");
    for (none, expected) in [
        (Inter { leaders: Some(0), ..Inter::default() }, "leaders=0: expected auto, or a whole number of at least 1"),
        (Inter { segment_bytes: Some(0), ..Inter::default() }, "segment_bytes=0: expected auto, or a whole number of"),
    ] {
        let refused = part.choose_by(Some(none)).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    assert_eq!(choice(&part), "net/scatter-ring");
    part.choose_by(None).unwrap();
    assert_eq!(choice(&part), before);
    own.set("nodes_form", "hierarchical").unwrap();
    own.set("inter_algorithm", "linear").unwrap();
    own.set("segment_bytes", "4096").unwrap();
    part.choose_by(Some(own)).unwrap();
    // Every rank has the work on the nodes of each of the four chunks, leaders that across them as well.
    let mut buffer = vec![1_i32; 4096];
    let ends = part.run_timed(&han::Call::allreduce_in_place(&mut buffer, Operator::Sum.into())).unwrap();
    assert!(buffer.iter().all(|&value| value == 4));
    let of =
        |kind: han::task::Kind| ends.iter().filter(|end| end.kind == kind).map(|end| end.chunk).collect::<Vec<_>>();
    assert_eq!([of(han::task::Kind::Sr), of(han::task::Kind::Sb)], [[0, 1, 2, 3]; 2]);
    assert!([0, 4].contains(&of(han::task::Kind::Ia).len()));
    println!("set alike");
    context.finalize().unwrap();
    std::process::exit(0);
}

#[test]
fn a_group_chooses_as_it_is_told() {
    let own = env::current_exe().unwrap();
    let program = [own.to_str().unwrap(), "play_a_role", "--exact", "--ignored", "--nocapture", "--quiet"];
    let told = Job::new(&[&TWO_BY_TWO[..], &["--"], &program].concat()).env(ROLE, "settings").start().finish();
    told.expect(0, &[]);
    assert_eq!(told.stdout.matches("set alike").count(), 4, "{}", told.stdout);
}

#[test]
fn a_reader_that_leaves_takes_nothing_from_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (svg, out) = (path("model.svg"), path("tuning.toml"));
    let validated = ["model", "bcast", "--validate", "--bytes", "256K", "--ms", "1", "--svg", &svg];
    let tuned = ["tune", "--ms", "1", "--quick", "--collectives", "bcast", "--min", "4", "--max", "4", "--out", &out];
    for (words, file, part) in [(&validated[..], &svg, "</svg>"), (&tuned, &out, "bcast = [")] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_han"));
        let output = command.args(words).stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.lines().all(|line| line.contains(" % measured, about ")), "{words:?}: {said}");
        // There is no terminal for a bar, and the search has nothing else to say before its end.
        assert!(words != tuned || said.starts_with("han: "), "{said}");
        assert_eq!(output.status.code(), Some(141), "{words:?}");
        assert!(fs::read_to_string(file).unwrap().contains(part), "{words:?}");
    }
}

#[test]
fn the_model_is_set_beside_measurements() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("model.svg");
    let words = ["model", "bcast", "--validate", "--bytes", "256K", "--ms", "1", "--svg", svg.to_str().unwrap()];
    let validated = han(&words).start().finish();
    validated.expect(0, &[]);
    for part in [
        "bcast of 256K by 2 x 2 ranks",
        "| 32K ",
        "| one chunk |",
        "8 configurations of several chunks, from the costs of tasks; error of the estimate: median ",
        "4 configurations of one chunk, from shorter and longer vectors; error of the estimate: median ",
        "quickest measured: ",
        "not compared: 2 that the built-in rules choose",
        "all ranks on the network",
        "inter_algorithm=scatter-ring,nodes_form=flat",
        "by messages as this job has them: 8 bytes ",
        " algorithms; error of the estimate: median ",
    ] {
        assert!(validated.stdout.contains(part), "{part} is missing in {}", validated.stdout);
    }
    assert!(fs::read_to_string(svg).unwrap().contains("</svg>"));
    // What has no chunks to speak of is compared as well, here for programs.
    let words = ["model", "allreduce", "--validate", "--bytes", "8", "--ms", "1", "--json"];
    let validated = han(&words).start().finish();
    validated.expect(0, &[]);
    let lines = validated.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let lines: Vec<serde_json::Value> = lines.collect();
    let of = |settings: &str| {
        let of = |line: &&serde_json::Value| line["settings"].as_str().unwrap().contains(settings);
        lines.iter().filter(of).count()
    };
    assert_eq!(of("inter_algorithm=nap,nodes_form=hierarchical"), 1, "{lines:#?}");
    assert!(of("nodes_form=hierarchical") > 2 && of("nodes_form=flat") > 2, "{lines:#?}");
    for line in &lines {
        assert_eq!((&line["coll"], &line["bytes"]), (&"allreduce".into(), &8.into()));
        assert_eq!((&line["nodes"], &line["ranks_per_node"]), (&2.into(), &2.into()));
        assert!(line["segment_bytes"].is_null(), "{line}");
        assert!(["estimate_us", "us"].iter().all(|us| line[us].as_f64().unwrap() > 0.0), "{line}");
    }
    for (words, why) in [
        (&["barrier"][..], "a barrier has no chunks"),
        (&["bcast", "--ppn", "300"], "--ppn 300: one node has at most 256 ranks"),
        (&["bcast", "--nodes", "2147483649", "--ppn", "2"], "it must be at most 1048576"),
    ] {
        let refused = han(&[&["model", "--validate", "--ms", "1"], words].concat()).start().finish();
        assert!(refused.code != 0 && refused.stderr.contains(why), "{words:?}: {refused:?}");
    }
}

#[test]
fn what_cannot_be_tuned_is_refused_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuning.toml");
    let out = out.to_str().unwrap();
    for (words, why) in [
        (&["--method", "guess"][..], "exhaustive, heuristic, task, task+heuristics"),
        (&["--collectives", "gather"], "there is no collective `gather`"),
        (&["-n", "5", "--nodes", "2"], "not spread evenly"),
        (&["-n", "514", "--nodes", "2"], "-n 514: one node has at most 256 ranks"),
        (&["--min", "8K", "--max", "4K"], "--min 8192 is more than --max 4096"),
        (&["--compare", "--method", "task"], "cannot be used with"),
    ] {
        let refused = han(&[&["tune", "--out", out], words].concat()).start().finish();
        assert!(refused.code != 0 && refused.stderr.contains(why), "{words:?}: {refused:?}");
    }
    let nowhere = folder.path().join("none/tuning.toml");
    let refused = han(&["tune", "--out", nowhere.to_str().unwrap()]).start().finish();
    refused.expect(1, &["han tune: --out ", "/none: No such file or directory"]);
    for max in ["4194304G", "17179869183G"] {
        let refused = tune(Path::new(out), &["--max", max]).start().finish();
        refused.expect(1, &["no memory for buffers of "]);
    }
    fs::write(out, "version = 7\n").unwrap();
    han(&["tune", "--out", out]).start().finish().expect(1, &["line 1: version 7 is not known"]);
}
