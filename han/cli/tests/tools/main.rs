//! `han bench`, `han explain`, `han info` and `han status` as a user runs them: real processes, real output.
#![allow(clippy::unwrap_used)]

mod explain;
#[path = "../run/ports.rs"]
mod ports;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Ranks with a core each choose by trial.
const SHARED_CORES: &str = "assume_own_cores=0";

/// The binary under test.
const HAN: &str = env!("CARGO_BIN_EXE_han");

/// The binary under test, with a configuration of its own.
fn han() -> Command {
    let mut command = Command::new(HAN);
    command.stdin(Stdio::null()).env_remove("HAN_SET");
    command
}

/// Runs it; gives standard output, or standard error if it failed.
fn output(arguments: &[&str]) -> Result<String, String> {
    output_with("", arguments)
}

/// As [`output`], with settings.
fn output_with(set: &str, arguments: &[&str]) -> Result<String, String> {
    let output = han().args(arguments).env("HAN_SET", set).output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn bench_prints_the_agreed_fields_in_order_and_verifies() {
    let fields = [
        "coll",
        "bytes",
        "ranks",
        "nodes",
        "dtype",
        "op",
        "root",
        "cold",
        "choice",
        "iters",
        "repeats",
        "us_min",
        "us_median",
        "us_max",
        "verified",
    ];
    let text =
        output(&["bench", "all", "-n", "3", "--root", "2", "--max", "40K", "--factor", "32", "--ms", "1", "--json"]);
    let text = text.unwrap();
    for line in text.lines() {
        let places: Vec<_> = fields.iter().map(|field| line.find(&format!("\"{field}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{line}");
    }
    let rows = lines(&text);
    // 4, 32, 1K and 32K bytes of three collectives, and a barrier.
    assert_eq!(rows.len(), 13);
    for row in rows {
        assert_eq!((&row["verified"], &row["ranks"], &row["nodes"]), (&true.into(), &3.into(), &1.into()), "{row}");
        let time = |name: &str| row[name].as_f64().unwrap();
        assert!(0.0 < time("us_min") && time("us_min") <= time("us_median") && time("us_median") <= time("us_max"));
        assert!(row["repeats"].as_u64().unwrap() >= 5);
    }
}

#[test]
fn bench_goes_on_where_the_distance_of_the_cores_cannot_be_measured() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let mark = format!("distance-{}", std::process::id());
    let patience = Instant::now() + Duration::from_secs(300);
    loop {
        let mut bench = han();
        bench.args(["bench", "barrier", "-n", "2", "--ms", "1", "--json"]).env(MARK, &mark);
        let mut bench = Job(bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        while bench.0.try_wait().unwrap().is_none() {
            kill_those_that_measure_it(&mark);
        }
        let said = std::io::read_to_string(bench.0.stderr.take().unwrap()).unwrap();
        if said.is_empty() {
            assert!(Instant::now() < patience, "no process of these was met");
            continue;
        }
        assert!(said.starts_with("han bench: the distance of the cores is not known: "), "{said}");
        let row = &lines(&std::io::read_to_string(bench.0.stdout.take().unwrap()).unwrap())[0];
        assert_eq!((&row["state"], &row["verified"]), (&"unknown".into(), &true.into()), "{row}");
        return;
    }
}

/// Ends the processes of such a `mark` that measure the distance of the cores.
fn kill_those_that_measure_it(mark: &str) {
    let names = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    for pid in names.filter_map(|name| name.parse().ok()) {
        let has = |file: &str, word: String| {
            let words = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
        };
        if has("cmdline", "--one-way".to_owned()) && has("environ", format!("{MARK}={mark}")) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

#[test]
fn bench_compares_policies_under_noise() {
    let plot = tempfile::NamedTempFile::new().unwrap();
    let path = plot.path().to_str().unwrap();
    let arguments = ["bench", "bcast", "-n", "3", "--max", "64K", "--json", "--svg", path];
    let text = output(&[&arguments[..], &["--noise", "rank=2,ms=20,at=0"]].concat()).unwrap();
    let rows = lines(&text);
    let policies: Vec<_> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["blocking", "wait_all", "event_driven"]);
    for row in &rows {
        assert_eq!((row["operations"].as_u64(), row["ranks"].as_u64()), (Some(15), Some(3)));
        assert!(row["choice"].as_str().unwrap().contains("binary"), "{row}");
        // It has slept so long in each of them.
        assert!(row["us_ranks_noisy"][2].as_f64().unwrap() >= 20_000.0, "{row}");
    }
    assert!(std::fs::read_to_string(path).unwrap().contains("event"));
    // What is told is what was carried out: whole elements, and at least one.
    for (max, bytes) in [("10", 8), ("0", 4)] {
        let text = output(&["bench", "bcast", "-n", "2", "--max", max, "--json", "--noise", "rank=1,ms=1"]).unwrap();
        assert!(lines(&text).iter().all(|row| row["bytes"] == bytes), "{text}");
    }
    let refused = |words: &[&str]| output(&[&["bench"], words].concat()).unwrap_err();
    assert!(refused(&["all", "-n", "2", "--noise", "rank=1,ms=1"]).contains("one collective"));
    assert!(refused(&["bcast", "-n", "2", "--noise", "rank=2,ms=1"]).contains("there are 2 ranks"));
    assert!(refused(&["bcast", "-n", "2", "--noise", "loud"]).contains("rank=R,ms=MS"));
    for spec in ["uniform=5..5ms,hz=1000", "uniform=10..0ms,hz=10", "rank=1,ms=1,hz=1000000"] {
        assert!(refused(&["bcast", "-n", "2", "--noise", spec]).contains("shorter than the period"), "{spec}");
    }
    std::fs::write(path, "precious").unwrap();
    let refused = refused(&["bcast", "-n", "2", "--noise", "rank=1,ms=1", "--svg", path]);
    assert!(refused.contains("is no picture, and stays as it is"), "{refused}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "precious");
}

#[test]
fn bench_verifies_other_datatypes_operators_and_ways() {
    for (datatype, operator) in [("bf16", "sum"), ("complex_f64", "prod"), ("double_int", "minloc"), ("bool", "lxor")] {
        for way in [&["--buffers", "3"][..], &["--style", "osu"], &["--cold"]] {
            let mut arguments = vec!["bench", "all", "-n", "2", "--dtype", datatype, "--op", operator, "--json"];
            arguments.extend(["--min", "16", "--max", "20K", "--factor", "1024", "--ms", "1"]);
            arguments.extend(way);
            let rows = lines(&output(&arguments).unwrap());
            assert_eq!(rows.len(), 7);
            assert!(rows.iter().all(|row| row["verified"] == true), "{arguments:?}");
        }
    }
}

#[test]
fn bench_says_what_is_wrong() {
    for (arguments, expected) in [
        (&["bench", "bcast", "-n", "2", "--set", "no_such_key=1"][..], "chunk_bytes"),
        (&["bench", "bcast", "-n", "2", "--nodes", "3"], "at least as many ranks"),
        (&["bench", "reduce", "-n", "2", "--dtype", "f32", "--op", "bxor"], "not defined"),
        (&["bench", "reduce", "-n", "2", "--root", "2"], "0 to 1"),
        (&["bench", "bcast", "-n", "2", "--min", "4194304G", "--max", "4194304G"], "no memory for buffers of 45035"),
        (&["bench", "bcast", "--nodes", "2", "--overlap", "--min", "4194304G", "--max", "4194304G"], "no memory for"),
        (&["bench", "bcast", "-n", "2", "--min", "17179869183G", "--max", "17179869183G"], "no memory for buffers"),
        (&["bench", "bcast", "-n", "-2"], "it must be at least 1"),
        (&["run", "-n", "2", "--", HAN, "bench", "bcast", "--nodes", "2"], "spread the ranks over 1"),
        (&["bench", "bcast", "-n", "1000", "--max", "8"], "one node has at most 256 ranks"),
        (&["explain", "bcast", "1.5K"], "give a whole number"),
    ] {
        let error = output(arguments).unwrap_err();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    // Not once a rank.
    let once = output_with("no_such_key=1", &["bench", "bcast", "-n", "3"]).unwrap_err();
    assert_eq!(once.lines().count(), 1, "{once}");
}

#[test]
fn settings_reach_ranks_behind_a_prefix_that_drops_variables() {
    let choices = |words: &[&str]| {
        let rows = lines(&output(&[words, &["-n", "2", "--json", "--node-exec", "env -i"]].concat()).unwrap());
        rows.iter().map(|row| row["choice"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for form in ["direct", "slice"] {
        let set = format!("form={form}");
        let words = ["bench", "allreduce", "--min", "64K", "--max", "64K", "--ms", "1", "--set", &set];
        assert_eq!(choices(&words), [format!("sm/{form}")]);
    }
    let words = ["bench", "bcast", "--max", "8", "--noise", "rank=1,ms=1"];
    assert_eq!(choices(&words), ["net/binary"; 3]);
    assert_eq!(choices(&[&words[..], &["--set", "inter_algorithm=linear"]].concat()), ["net/linear"; 3]);
}

#[test]
fn arguments_may_stand_behind_the_end_of_options() {
    for words in ["bench -n 2 --max 8 --ms 1 -- bcast", "explain -n 2 --nodes 2 --node-exec env -- bcast 8"] {
        output(&words.split(' ').collect::<Vec<_>>()).unwrap();
    }
}

#[test]
fn the_shell_of_a_single_rank_may_start_a_job_of_several() {
    let words = ["--max", "8", "--min", "8", "--ms", "1", "--json"];
    let in_shell = |words: &[&str]| output(&[&["run", "-n", "1", "--", HAN, "bench", "bcast"], words].concat());
    let ranks = |wanted: &[&str]| lines(&in_shell(&[&words, wanted].concat()).unwrap())[0]["ranks"].as_u64();
    assert_eq!([ranks(&["-n", "3"]), ranks(&["--nodes", "2", "-n", "2"]), ranks(&[])], [3, 2, 1].map(Some));
    assert_eq!(lines(&in_shell(&["-n", "2", "--max", "8", "--json", "--noise", "rank=1,ms=1"]).unwrap()).len(), 3);
    // As Hydra starts it, which does not say how many ranks there are.
    let hydra = ["env", "-u", "PMI_FD", "-u", "PMI_SIZE", "PMI_PORT=localhost:1", HAN, "bench", "bcast", "-n", "2"];
    let refused = output(&[&["run", "-n", "1", "--"], &hydra[..], &["--noise", "rank=1,ms=1"]].concat()).unwrap_err();
    assert!(refused.contains("env -u PMI_PORT han bench"), "{refused}");
}

#[test]
fn limits_are_objects_with_name_size_value_and_unit() {
    let rows = lines(&output(&["bench", "--limits", "--json"]).unwrap());
    for row in &rows {
        assert!(row["value"].as_f64().unwrap() > 0.0, "{row}");
        let unit = if row["bytes"].is_null() { "ns" } else { "GB/s" };
        assert_eq!(row["unit"], unit, "{row}");
    }
    // The others need two cores, or a kernel that lets one process read another.
    for name in ["memcpy", "reduce_f32_sum", "yield_switch"] {
        assert!(rows.iter().any(|row| row["limit"] == name), "{name}");
    }
}

#[test]
fn info_tells_what_became_of_each_copy_method() {
    let verdicts = |set: &str| {
        let text = han().args(["info", "--json"]).env("HAN_SET", set).output().unwrap().stdout;
        let info: Value = serde_json::from_slice(&text).unwrap();
        let methods = info["copy_methods"].as_array().unwrap().clone();
        let verdict = |name: &str| methods.iter().find(|method| method["method"] == name).unwrap()["verdict"].clone();
        ["memfd", "dev_shm", "shared", "cma", "cico"].map(|name| verdict(name).as_str().unwrap().to_owned())
    };
    assert!(verdicts("").iter().all(|verdict| verdict == "works"), "{:?}", verdicts(""));
    let [.., shared, cma, cico] = verdicts("methods=cico,cma");
    assert_eq!([shared.as_str(), &cma, &cico], ["methods=cma+cico was set", "works", "works"]);
    let text = output(&["info"]).unwrap();
    assert!(text.contains("| shared ") && text.contains("| cma ") && text.contains("shared+cma+cico"), "{text}");
}

#[test]
fn info_tells_the_whole_configuration() {
    let text = String::from_utf8(han().args(["info", "--json"]).env("HAN_SET", "spins=7").output().unwrap().stdout);
    let info: Value = serde_json::from_str(&text.unwrap()).unwrap();
    let settings = info["configuration"].as_array().unwrap();
    let spins = settings.iter().find(|setting| setting["key"] == "spins").unwrap();
    assert_eq!((&spins["value"], &spins["origin"]), (&"7".into(), &"HAN_SET".into()));
    assert!(settings.iter().any(|setting| setting["origin"] == "default"));
    assert!(!info["hardware"]["allowed"].as_array().unwrap().is_empty());
    let text = output(&["info"]).unwrap();
    assert!(text.contains("chunk_bytes"), "{text}");
}

#[test]
fn bench_measures_on_memory_that_peers_map() {
    let run = |alloc: &str| {
        let arguments = ["bench", "all", "-n", "3", "--min", "512K", "--max", "512K", "--alloc", alloc, "--json"];
        let rows = lines(&output_with(SHARED_CORES, &arguments).unwrap());
        assert!(rows.iter().all(|row| row["verified"] == true && row["alloc"] == alloc));
        let choices = rows.iter().map(|row| row["choice"].as_str().unwrap().to_owned());
        choices.collect::<Vec<_>>()
    };
    assert_eq!(run("private"), ["sm/flat", "sm/direct", "sm/slice", "sm/slice"]);
    assert_eq!(run("shared"), ["sm/flat", "solo/direct", "solo/slice", "solo/slice"]);
}

#[test]
fn overlap_is_told_of_every_leader_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("overlap.svg");
    let svg = svg.to_str().unwrap();
    let common = ["bench", "-n", "4", "--nodes", "2", "--overlap", "--ms", "1", "--min", "64K", "--max", "64K"];
    let set = "leaders=2,inter_module=nbc,inter_allreduce_algorithm=ring";
    let done = output_with(set, &[&common, &["allreduce", "--json", "--svg", svg][..]].concat()).unwrap();
    let rows = lines(&done);
    let leaders: Vec<[u64; 3]> =
        rows.iter().map(|row| ["node", "rail", "leader"].map(|key| row[key].as_u64().unwrap())).collect();
    assert_eq!(leaders, [[0, 0, 0], [0, 1, 1], [1, 0, 3], [1, 1, 2]]);
    for row in &rows {
        assert_eq!((&row["module"], &row["inter"]), (&"nbc".into(), &"net/ring".into()));
        assert!((0.0..=1.0).contains(&row["overlap"].as_f64().unwrap()), "{row}");
    }
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert!(drawn.contains("rank 3 on node 1, nbc") && drawn.contains("allreduce: overlap"), "{drawn}");
    let both = output_with("inter_module=adapt", &[&common, &["bcast,reduce", "--svg", svg][..]].concat()).unwrap();
    assert_eq!(both.matches("| adapt ").count(), 2 * 2, "{both}");
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert!(drawn.contains("bcast: overlap") && drawn.contains("reduce: overlap"), "{drawn}");
}

#[test]
fn pictures_are_drawn_whoever_reads_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("a.svg");
    let overlap = ["bench", "bcast,reduce", "-n", "2", "--nodes", "2", "--overlap", "--ms", "1", "--max", "8"];
    let noise = ["bench", "bcast", "-n", "2", "--noise", "rank=1,ms=1", "--max", "8"];
    for (arguments, part) in [(&overlap[..], "reduce: overlap"), (&noise, "bcast of 8")] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = han();
        command.args(arguments).arg("--svg").arg(&picture).stdout(writer);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), &*output.stderr), (Some(141), &b""[..]), "{arguments:?}");
        assert!(std::fs::read_to_string(&picture).unwrap().contains(part), "{arguments:?}");
        std::fs::remove_file(&picture).unwrap();
    }
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    for arguments in [
        &["bench", "--limits", "--json"][..],
        &["bench", "all", "-n", "2", "--max", "8", "--ms", "1"],
        &["bench", "all", "-n", "2", "--nodes", "2", "--overlap", "--max", "8", "--ms", "1"],
        &["info"],
        &["explain", "bcast", "1M"],
        &["status"],
    ] {
        // The reader is gone before anything is written, so the first write fails.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = han().args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn a_full_disk_is_an_error_and_no_panic() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for (arguments, name) in
        [(&["--version"][..], "han"), (&["--help"], "han"), (&["run", "--help"], "han"), (&["status"], "han status")]
    {
        let output = han().args(arguments).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, format!("{name}: cannot write to standard output: No space left on device (os error 28)\n"));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(han().args(arguments).stdout(full()).stderr(full()).status().unwrap().code(), Some(1));
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(han().arg("--version").stdout(writer).status().unwrap().code(), Some(141));
}

/// A job that is ended with the test, however the test ends.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A job of barriers that lasts until it is ended.
const ENDLESS: [&str; 6] = ["bench", "barrier", "--ms", "59999", "--repeats", "1000"];

/// The variable by which a job is told from those of other tests, and of those of another run of these.
const MARK: &str = "HAN_TEST_MARK";

/// A job of which every rank has `mark` as its value of [`MARK`].
fn job_with(mark: &str) -> Option<Value> {
    jobs_with(mark).into_iter().next()
}

/// All such jobs.
fn jobs_with(mark: &str) -> Vec<Value> {
    let marked = |rank: &Value| {
        let pid = rank["pid"].as_u64().unwrap();
        let wanted = format!("{MARK}={mark}");
        let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let jobs = lines(&output(&["status", "--json"]).unwrap());
    // One that is about to end may have no rank left.
    let marked = jobs.into_iter().filter(|job| {
        // Other builds have jobs here, too.
        job["ranks"].as_array().is_some_and(|ranks| !ranks.is_empty() && ranks.iter().all(marked))
    });
    marked.collect()
}

#[test]
fn status_names_the_rank_that_is_missing() {
    let mark = format!("missing-{}", std::process::id());
    let mut command = han();
    command.args(ENDLESS).args(["-n", "2"]).env(MARK, &mark).stdout(Stdio::null());
    let _job = Job(command.spawn().unwrap());
    let patience = Instant::now() + Duration::from_secs(300);
    let until = |found: &dyn Fn(&Value) -> bool| loop {
        if let Some(job) = job_with(&mark).filter(|job| found(job)) {
            return job;
        }
        assert!(Instant::now() < patience, "the job did not come into the expected state");
        std::thread::sleep(Duration::from_millis(50));
    };
    // Not while they start, where ranks wait without an operation.
    let is_in_many_barriers = |rank: &Value| {
        let number = rank["operation"].as_str().and_then(|operation| operation.strip_prefix("barrier() #"));
        number.and_then(|number| number.split(' ').next()?.parse().ok()).is_some_and(|number: u64| number > 1000)
    };
    let job = until(&|job| job["ranks"].as_array().unwrap().iter().any(is_in_many_barriers));
    let pid = |rank: usize| Pid::from_raw(job["ranks"][rank]["pid"].as_i64().unwrap().try_into().unwrap());
    kill(pid(1), Signal::SIGSTOP).unwrap();
    // A signal takes effect some time later.
    let stuck =
        until(&|job| job["ranks"][1]["state"] == "stopped" && job["ranks"][0]["missing"] == serde_json::json!([1]));
    assert_eq!(stuck["ranks"][0]["state"], "waiting");
    assert!(stuck["ranks"][0]["operation"].as_str().unwrap().contains("barrier"), "{stuck}");
    kill(pid(1), Signal::SIGCONT).unwrap();
}

#[test]
fn status_says_which_part_of_a_world_it_shows() {
    let mark = format!("world-{}", std::process::id());
    let mut command = han();
    command.args(ENDLESS).args(["-n", "3", "--nodes", "2"]).env(MARK, &mark).stdout(Stdio::null());
    let _job = Job(command.spawn().unwrap());
    let patience = Instant::now() + Duration::from_secs(300);
    let until = |what: &str, found: &dyn Fn(&[Value]) -> bool| loop {
        // The node with ranks 0 and 1, then that with rank 2.
        let mut jobs = jobs_with(&mark);
        jobs.sort_by_key(|job| job["ranks"][0]["world_rank"].as_u64());
        if found(&jobs) {
            return jobs;
        }
        assert!(Instant::now() < patience, "no {what} in {jobs:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let is_in_barriers = |rank: &Value| rank["operation"].as_str().is_some_and(|of| of.starts_with("barrier() #"));
    let jobs = until("barrier on two nodes", &|jobs| {
        let ranks = || jobs.iter().flat_map(|job| job["ranks"].as_array().unwrap());
        jobs.len() == 2 && ranks().all(|rank| rank["world_size"] == 3) && ranks().any(is_in_barriers)
    });
    let last = Pid::from_raw(jobs[1]["ranks"][0]["pid"].as_i64().unwrap().try_into().unwrap());
    assert_eq!(jobs[1]["ranks"][0]["world_rank"], 2);
    kill(last, Signal::SIGSTOP).unwrap();
    until("wait for rank 2 over the network", &|jobs| {
        let waits = |rank: &Value| rank["missing_in_world"] == serde_json::json!([2]) && rank["state"] == "waiting";
        jobs.len() == 2 && jobs[0]["ranks"].as_array().unwrap().iter().any(waits)
    });
    let text = output(&["status"]).unwrap();
    assert!(text.contains("of this node, of a world of 3"), "{text}");
    assert!(text.contains("`han status` on their nodes"), "{text}");
    kill(last, Signal::SIGCONT).unwrap();
}

#[test]
fn status_knows_the_ranks_of_a_world_that_no_launcher_tells_of() {
    let mark = format!("rendezvous-{}", std::process::id());
    let port = ports::free();
    let rank = |rank: &str| {
        let mut command = han();
        command.args(ENDLESS).arg("--worker").env(MARK, &mark).stdout(Stdio::null());
        command.env("HAN_RENDEZVOUS", format!("127.0.0.1:{port}")).env("HAN_SECRET", "a secret of these tests");
        Job(command.env("HAN_RANK", rank).env("HAN_SIZE", "2").spawn().unwrap())
    };
    let _jobs = [rank("0"), rank("1")];
    let patience = Instant::now() + Duration::from_secs(300);
    loop {
        let places = |job: Value| {
            job["ranks"]
                .as_array()
                .unwrap()
                .iter()
                .map(|r| (r["world_rank"].clone(), r["world_size"].clone()))
                .collect::<Vec<_>>()
        };
        let places = job_with(&mark).map(places);
        if places == Some(vec![(0.into(), 2.into()), (1.into(), 2.into())]) {
            return;
        }
        assert!(Instant::now() < patience, "{places:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn schedules_are_proved_by_a_command() {
    let rows = lines(&output(&["model", "barrier", "--verify", "--json"]).unwrap());
    assert!(rows.iter().any(|row| row["algorithm"] == "dissemination"), "{rows:?}");
    assert!(rows.iter().all(|row| row["proved"] == true), "{rows:?}");
    let text = output(&["model", "allreduce", "--verify", "quick", "--algorithm", "ring,knomial-3"]).unwrap();
    assert!(text.contains("1 to 64 ranks, all roots, 1 to 5 chunks"), "{text}");
    assert_eq!(text.matches("  proved").count(), 2, "{text}");
}
