//! What is left of jobs that do not end well, and what is refused at the start.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::json;

use crate::harness::{Job, eventually};
use crate::roles::{ELSEWHERE, LIMIT, job, program};
use crate::testbed::Testbed;
use crate::traced::{Traced, folder, han_trace, names};

#[test]
fn a_file_that_cannot_be_written_ends_the_start() {
    for options in [&["-n", "2"][..], &["-n", "2", "--nodes", "2"]] {
        let done = job(options, "few", Path::new("/no/such/folder/trace.json")).finish();
        done.expect(3, &["report of rank 0", "HAN_TRACE: rank 0 on ", "/no/such/folder/trace.json: No such file"]);
        assert!(!done.stdout.contains("done"), "{done:#?}");
    }
    // A folder is no file.
    let (folder, _) = folder();
    job(&["-n", "1"], "few", folder.path()).finish().expect(3, &["cannot write", "directory"]);
    assert_eq!(names(&folder), [""; 0]);
    assert!(!folder.path().with_extension("rank-0").exists());
}

#[test]
fn a_file_that_would_be_too_long_is_an_error_at_the_end() {
    let (folder, file) = folder();
    let job = || job(&["-n", "2"], "limited", &file);
    job().finish().expect(0, &[]);
    let bytes = fs::metadata(&file).unwrap().len();
    // Too little for the ranks' own files, then for that of all ranks only.
    for (limit, name) in [(1000, "trace.json.rank-0"), (bytes / 4 * 3, "trace.json")] {
        let done = job().env(LIMIT, &limit.to_string()).finish();
        let why = format!("HAN_TRACE: rank 0 cannot write {}: it is longer", folder.path().join(name).display());
        done.expect(3, &["report of rank 0", &why, "(ulimit -f)"]);
        assert_eq!(names(&folder), ["trace.json", "trace.json.rank-0", "trace.json.rank-1"]);
        Traced::read(&folder.path().join("trace.json.rank-1"));
    }
}

#[test]
fn a_file_of_something_else_is_not_written_over() {
    for text in ["precious", &"precious ".repeat(100)] {
        let (folder, file) = folder();
        fs::write(&file, text).unwrap();
        job(&["-n", "2"], "few", &file).finish().expect(3, &["is no trace, and stays as it is: name another file"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(names(&folder), ["trace.json"]);
        // An empty one is as good as none, and a trace gives way to the next.
        fs::write(&file, "").unwrap();
        for _ in 0..2 {
            job(&["-n", "2"], "few", &file).finish().expect(0, &[]);
        }
        assert!(fs::read_to_string(&file).unwrap().starts_with("{\"displayTimeUnit\""));
    }
}

#[test]
fn a_program_may_change_its_directory() {
    for options in [&["-n", "2"][..], &["-n", "2", "--nodes", "2"]] {
        let (folder, file) = folder();
        let own = folder.path().join(ELSEWHERE);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("trace.json"), "precious").unwrap();
        let script = format!("cd {} && exec {}", folder.path().display(), program().join(" "));
        let job = Job::script(options, &script).env("HAN_TEST_ROLE", "moves").env("HAN_TRACE", "trace.json");
        job.finish().expect(0, &[]);
        assert_eq!(fs::read_to_string(own.join("trace.json")).unwrap(), "precious");
        assert_eq!(names(&folder), [ELSEWHERE, "trace.json"]);
        let calls = Traced::read(&file);
        assert!((0..2).all(|rank| calls.calls(rank).len() == 2), "{calls:?}");
    }
}

#[test]
fn devices_stay_and_links_are_followed() {
    let (folder, file) = folder();
    let [pipe, link] = ["pipe", "link"].map(|name| folder.path().join(name));
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    job(&["-n", "2"], "few", &pipe).finish().expect(3, &["/pipe: it is no regular file"]);
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    symlink("trace.json", &link).unwrap();
    job(&["-n", "1"], "few", &link).finish().expect(0, &[]);
    assert!(link.is_symlink());
    Traced::read(&file);
    assert_eq!(names(&folder), ["link", "pipe", "trace.json"]);
}

#[test]
fn ranks_that_differ_in_it_are_told() {
    let (folder, file) = folder();
    let script = format!("[ $PMI_RANK = 1 ] && unset HAN_TRACE; exec {}", program().join(" "));
    for options in [&["-n", "2"][..], &["-n", "2", "--nodes", "2"]] {
        let job = Job::script(options, &script).env("HAN_TEST_ROLE", "few").env("HAN_TRACE", file.to_str().unwrap());
        let done = job.finish();
        assert_ne!(done.code, 0, "{done:#?}");
        assert!(done.stderr.contains("rank 0 has trace=on, rank 1 has trace=off: set "), "{done:#?}");
    }
    drop(folder);
}

#[test]
fn messages_count_the_calls_of_the_program_alone() {
    for options in [&["-n", "2"][..], &["-n", "4", "--nodes", "2"]] {
        let (_folder, file) = folder();
        job(options, "unlike", &file).finish().expect(3, &["operation #31 on communicator 0: "]);
    }
}

/// The process of `rank` among `processes`.
fn process(processes: Vec<Pid>, rank: usize) -> Pid {
    let is_rank = |pid: &Pid| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable == format!("PMI_RANK={rank}").as_bytes())
    };
    processes.into_iter().find(is_rank).unwrap()
}

#[test]
fn survivors_of_a_death_leave_their_parts() {
    for options in [&["-n", "3"][..], &["-n", "3", "--nodes", "2"]] {
        let (folder, file) = folder();
        let mut job = job(options, "stream", &file).start();
        job.wait_for_lines("streaming", 3);
        kill(process(job.processes(), 1), Signal::SIGKILL).unwrap();
        job.finish();
        assert_eq!(names(&folder), ["trace.json", "trace.json.rank-0", "trace.json.rank-1", "trace.json.rank-2"]);
        for rank in [0, 2] {
            let part = Traced::read(&folder.path().join(format!("trace.json.rank-{rank}")));
            assert_eq!(part.about["whole"], false);
            let spans = part.spans(rank);
            let failed: Vec<_> = spans.iter().filter_map(|span| span.args["error"].as_str()).collect();
            assert!(matches!(failed[..], [error] if error.contains("rank 1")), "{failed:?}");
        }
        let text = han_trace(&[file.to_str().unwrap()]).unwrap();
        assert!(text.contains("has not come to its end") && text.contains("3 of 3 ranks"), "{text}");
    }
}

#[test]
fn a_job_that_is_killed_leaves_what_there_was() {
    let (folder, file) = folder();
    let mut job = job(&["-n", "2"], "stream", &file).start();
    job.wait_for_lines("streaming", 2);
    let part = |rank: usize| folder.path().join(format!("trace.json.rank-{rank}"));
    eventually("both ranks have written of their calls", || {
        (0..2).all(|rank| fs::read_to_string(part(rank)).unwrap().contains("\"allreduce\""))
    });
    job.signal(Signal::SIGKILL);
    job.wait_until_gone();
    for rank in 0..2 {
        let part = Traced::read(&part(rank));
        assert!(!part.calls(rank).is_empty());
    }
    // Both have the same story to tell, as one file, too.
    let merged = folder.path().join("merged.json");
    let words = [file.to_str().unwrap(), "--merge", merged.to_str().unwrap()];
    let text = han_trace(&words).unwrap();
    assert!(text.contains("2 of 2 ranks"), "{text}");
    let merged = Traced::read(&merged);
    assert_eq!(merged.about["ranks"].as_array().unwrap().len(), 2);
    for rank in 0..2 {
        assert_eq!(merged.calls(rank), Traced::read(&part(rank)).calls(rank));
    }
    // A part alone is a file, too.
    let text = han_trace(&[part(1).to_str().unwrap()]).unwrap();
    assert!(text.contains("| 1 "), "{text}");
}

#[test]
fn parts_of_several_clocks_are_brought_together() {
    if Testbed::up(1).is_none() {
        return;
    }
    // The second rank's clock is 1000 seconds ahead.
    let ahead = "unshare --time --monotonic {node}000 --fork --kill-child";
    let (folder, file) = folder();
    let mut job = job(&["-n", "2", "--nodes", "2", "--node-exec", ahead], "stream", &file).start();
    job.wait_for_lines("streaming", 2);
    let part = |rank: usize| folder.path().join(format!("trace.json.rank-{rank}"));
    eventually("both ranks have written of their calls", || {
        (0..2).all(|rank| fs::read_to_string(part(rank)).unwrap().contains("\"allreduce\""))
    });
    job.signal(Signal::SIGKILL);
    job.wait_until_gone();
    let merged = folder.path().join("merged.json");
    let text = han_trace(&[file.to_str().unwrap(), "--merge", merged.to_str().unwrap()]).unwrap();
    assert!(text.contains("times agree to"), "{text}");
    let merged = Traced::read(&merged);
    let slack_us = merged.rank(1)["clock_error_ns"].as_f64().unwrap() / 1000.0;
    assert!(slack_us > 0.0 && slack_us < 1e6, "{slack_us}");
    let calls = |rank: usize| -> BTreeMap<u64, (f64, f64)> {
        let closed =
            merged.spans(rank).into_iter().filter(|span| span.category == "call" && span.args["open"].is_null());
        closed.map(|span| (span.args["number"].as_u64().unwrap(), (span.begin, span.end))).collect()
    };
    let (of_0, of_1) = (calls(0), calls(1));
    let pairs: Vec<_> = of_0.iter().filter_map(|(number, first)| Some((first, of_1.get(number)?))).collect();
    assert!(!pairs.is_empty());
    // Clocks may drift while the job runs, but not by milliseconds.
    let slack_us = slack_us + 1000.0;
    for (first, second) in pairs {
        assert!(first.0 <= second.1 + slack_us && second.0 <= first.1 + slack_us, "{first:?} {second:?}");
    }
}

#[test]
fn what_is_no_trace_is_refused() {
    let (folder, file) = folder();
    let name = file.to_str().unwrap();
    assert!(han_trace(&[name]).unwrap_err().contains("No such file"));
    for text in ["", "[]", "{\"traceEvents\":[]}", "{\"otherData\":{},\"traceEvents\":[]"] {
        fs::write(&file, text).unwrap();
        let error = han_trace(&[name]).unwrap_err();
        assert!(error.contains("no file that HAN_TRACE has written"), "{text:?}: {error}");
    }
    fs::remove_file(&file).unwrap();
    let other = folder.path().join("other.json");
    job(&["-n", "1"], "few", &file).finish().expect(0, &[]);
    job(&["-n", "1"], "few", &other).finish().expect(0, &[]);
    assert!(han_trace(&[name, other.to_str().unwrap()]).unwrap_err().contains("several jobs"));
    assert!(han_trace(&[name, name]).unwrap_err().contains("rank 0 comes twice"));
    assert!(han_trace(&[name, "--call", "1000"]).unwrap_err().contains("no call 1000"));
    assert!(han_trace(&[name, "--call", "x"]).unwrap_err().contains("as 17 or 3:17"));
    assert!(han_trace(&[name, "--from", "5", "--to", "4"]).unwrap_err().contains("leave nothing"));
    assert!(han_trace(&[name, "--from", "nan"]).unwrap_err().contains("no number of milliseconds"));
    assert!(han_trace(&[name, "--svg", "/no/such/folder/x.svg"]).unwrap_err().contains("cannot write"));
}

/// A head of a job of `size` ranks, and the part of rank `rank` if there is one.
fn head(size: u64, rank: Option<u64>) -> String {
    let part = rank.map(|rank| {
        json!({ "rank": rank, "last": true, "node": 0, "host": "a", "pid": 1, "spans": 0, "dropped": 0, "clock": "c",
            "clock_error_ns": 0, "marks": [] })
    });
    let about = json!({ "job": "j", "size": size, "whole": false, "ranks": Vec::from_iter(part) });
    json!({ "otherData": about, "traceEvents": [] }).to_string()
}

#[test]
fn missing_and_damaged_parts_are_told() {
    let (folder, file) = folder();
    let part = |rank: usize| folder.path().join(format!("trace.json.rank-{rank}"));
    fs::write(&file, head(3, None)).unwrap();
    fs::write(part(0), head(3, Some(0))).unwrap();
    fs::write(part(1), "{\"otherData\"").unwrap();
    let name = file.to_str().unwrap();
    let text = han_trace(&[name]).unwrap();
    assert!(text.contains("1 of 3 ranks have left") && text.contains("rank 1 is left out: "), "{text}");
    assert!(!text.contains("rank 2 is left out") && !text.contains("only"), "{text}");
    let error = han_trace(&[name, "--svg", part(1).to_str().unwrap()]).unwrap_err();
    assert!(error.contains("is no picture, and stays as it is"), "{error}");
    // Parts that are named, and a file of all that there is.
    let text = han_trace(&[part(0).to_str().unwrap()]).unwrap();
    assert!(text.contains("only 1 of 3 ranks"), "{text}");
    fs::remove_file(part(0)).unwrap();
    assert!(han_trace(&[name]).unwrap_err().contains("rank 1 is left out: "));
    fs::write(&file, head(1_000_000_000_000_000_000, None)).unwrap();
    assert!(han_trace(&[name]).unwrap_err().contains("1048576 are the most"));
}
