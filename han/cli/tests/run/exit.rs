//! Exit codes and the sentences that explain them.

#![allow(unsafe_code)] // runs code before exec

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;
use nix::unistd::geteuid;

use crate::forbid::forbid;
use crate::harness::{Job, unshared};

#[test]
fn success_is_silent() {
    let done = Job::script(&["-n", "3"], "echo rank $PMI_RANK of $PMI_SIZE").finish();
    done.expect(0, &[]);
    assert_eq!(done.sorted_lines(), ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]);
    assert_eq!(done.stderr, "");
}

#[test]
fn the_first_failing_rank_decides_and_is_named() {
    let done = Job::script(&["-n", "3"], "[ $PMI_RANK = 1 ] && exit 7; sleep 300").finish();
    done.expect(7, &["han run: rank 1 (pid ", ") exited with code 7\n", "ending ranks 0, 2 by SIGTERM"]);
}

/// Tools of han tell by it that their reader has left.
#[test]
fn the_code_of_a_broken_pipe_is_one_like_others_while_there_is_a_reader() {
    let done = Job::script(&["-n", "2", "--grace", "1"], "[ $PMI_RANK = 1 ] && exit 141; sleep 300").finish();
    done.expect(141, &["han run: rank 1 (pid ", ") exited with code 141\n", "ending rank 0 by SIGTERM"]);
}

#[test]
fn a_killed_rank_is_told_by_its_signal() {
    let done = Job::script(&["-n", "2"], "[ $PMI_RANK = 1 ] && kill -9 $$; sleep 300").finish();
    done.expect(137, &["han run: rank 1 (pid ", ") was killed by signal 9 (SIGKILL)\n"]);
    let done = Job::script(&["-n", "1"], "kill -SEGV $$").finish();
    done.expect(139, &["was killed by signal 11 (SIGSEGV)"]);
}

#[test]
fn real_time_signals_are_signals_like_others() {
    let orphan = "(sh -c 'kill -40 $$' &); sleep 0.5; echo done";
    let done = Job::script(&["-n", "2"], orphan).finish();
    done.expect(0, &[]);
    assert_eq!(done.stdout, "done\ndone\n");
    let done = Job::script(&["-n", "2"], "[ $PMI_RANK = 1 ] && kill -64 $$; sleep 300").finish();
    done.expect(192, &["han run: rank 1 (pid ", ") was killed by signal 64\n", "ending rank 0 by SIGTERM"]);
}

#[test]
fn survivors_may_report_their_own_error() {
    let script = "[ $PMI_RANK = 2 ] && kill -9 $$; sleep 0.3; echo rank $PMI_RANK saw it >&2; exit 5";
    let done = Job::script(&["-n", "3", "--grace", "120"], script).finish();
    done.expect(137, &["rank 2 (pid ", "rank 0 saw it\n", "rank 1 saw it\n"]);
    assert!(!done.stderr.contains("SIGTERM"), "{done:?}");
}

#[test]
fn survivors_that_ignore_sigterm_are_killed() {
    // Rank 0 fails when the other one ignores the signal.
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready").display().to_string();
    let script = "if [ $PMI_RANK = 0 ]; then until [ -e $READY ]; do sleep 0.05; done; exit 4; fi; \
                  trap '' TERM; : > $READY; while :; do sleep 0.1; done";
    Job::script(&["-n", "2"], script)
        .env("READY", &ready)
        .finish()
        .expect(4, &["ending rank 1 by SIGTERM", "killing rank 1"]);
}

#[test]
fn timeout_names_the_ranks_that_were_still_running() {
    let script = "[ $PMI_RANK = 1 ] && exit 0; sleep 300";
    let done = Job::script(&["-n", "4", "--timeout", "20"], script).finish();
    done.expect(124, &["--timeout of 20 s; ranks 0, 2-3 were still running"]);
    Job::script(&["-n", "1", "--timeout", "600"], "exit 0").finish().expect(0, &[]);
}

#[test]
fn stopped_ranks_do_not_escape_the_timeout() {
    Job::script(&["-n", "2", "--timeout", "0.5"], "kill -STOP $$").finish().expect(124, &["ranks 0-1 were"]);
}

/// The program, linked for a loader that is nowhere.
fn for_no_loader(program: &[u8]) -> Vec<u8> {
    let at = program.windows(4).position(|bytes| bytes == b"/lib").unwrap();
    [&program[..at], b"/LIB", &program[at + 4..]].concat()
}

#[test]
fn programs_that_cannot_start_are_named() {
    let missing = Job::new(&["-n", "2", "no-such-program-here"]).finish();
    missing.expect(127, &["\"no-such-program-here\": there is no such program in PATH"]);
    Job::new(&["-n", "2", "./no/such"]).finish().expect(127, &["\"./no/such\": there is no such file"]);
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("a-script-here");
    fs::write(&script, "#! /no/such/interpreter\r\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let interpreter = Job::new(&["-n", "2", script.to_str().unwrap()]).finish();
    interpreter.expect(127, &["its interpreter \"/no/such/interpreter\\r\", named in its first line, does not exist"]);
    let forgotten = Job::new(&["-n", "2", "a-script-here"]).with(|c| c.current_dir(directory.path())).finish();
    forgotten.expect(127, &["in PATH; did you mean ./a-script-here?"]);
    fs::write(&script, for_no_loader(&fs::read("/bin/true").unwrap())).unwrap();
    Job::new(&["-n", "2", script.to_str().unwrap()])
        .finish()
        .expect(127, &["the loader that it was linked for does not"]);
    Job::new(&["-n", "2", "/etc/passwd"]).finish().expect(126, &["\"/etc/passwd\": it is not an executable file"]);
    Job::new(&["-n", "2", "/etc"]).finish().expect(126, &["\"/etc\": it is not an executable file"]);
    Job::new(&["-n", "2", "--node-exec", "no-such-prefix", "true"]).finish().expect(127, &["\"no-such-prefix\""]);
}

#[test]
fn wrong_arguments_are_explained() {
    Job::new(&["-n", "0", "true"]).finish().expect(2, &["'0' for '-n <N>': it must be at least 1"]);
    Job::new(&["-n", "-1", "true"]).finish().expect(2, &["-1"]);
    Job::new(&["-n", "2", "--nodes", "3", "true"]).finish().expect(2, &["3 nodes need at least as many ranks"]);
    Job::new(&["-n", "2", "--bind", "socket", "true"]).finish().expect(2, &["core, none"]);
    Job::new(&["-n", "2"]).finish().expect(2, &["<PROG>"]);
    Job::new(&["true"]).finish().expect(2, &["-n <N>"]);
    Job::new(&["-n", "1000000000", "true"]).finish().expect(2, &["it must be at most 1048576"]);
    Job::new(&["-n", "1", "--timeout", "1e-10", "true"]).finish().expect(2, &["'1e-10' for '--timeout <S>'"]);
    Job::script(&["-n", "1", "--grace", "1e9", "--timeout", "1e9"], "exit 3").finish().expect(3, &["with code 3"]);
}

/// `han run WORDS` from a shell that has done `before`.
fn after(shell: &str, before: &str, words: &[&str]) -> Job {
    let mut command = Command::new(shell);
    command.args(["-c", &format!("{before}; exec \"$0\" run \"$@\""), env!("CARGO_BIN_EXE_han")]).args(words);
    Job::of(command)
}

#[test]
fn the_limit_of_open_files_is_raised_beyond_inherited_ones() {
    after("bash", "ulimit -n 512; for i in {20..119}; do eval \"exec $i</dev/null\"; done", &["-n", "130", "true"])
        .finish()
        .expect(1, &["130 ranks need", "the limit (ulimit -Hn) is 512"]);
    let before = "for i in {20..119}; do eval \"exec $i</dev/null\"; done; ulimit -Sn 160";
    after("bash", before, &["-n", "30", "true"]).finish().expect(0, &[]);
}

#[test]
fn a_limit_of_file_sizes_is_an_error_for_the_launcher_and_a_signal_for_ranks() {
    let limited = |script| {
        let out = tempfile::tempfile().unwrap();
        after("/bin/sh", "ulimit -f 1", &["-n", "1", "--", "/bin/sh", "-c", script]).with(|c| c.stdout(out)).finish()
    };
    limited("printf %3000d 1").expect(1, &["cannot write to standard output: File too large"]);
    limited("f=$(mktemp); trap \"rm $f\" EXIT; (printf %3000d 1 >$f)").expect(128 + 25, &[]);
}

#[test]
fn a_limit_of_processes_is_no_panic() {
    // The limit is none for root, so another user starts the job; the higher the limit, the farther it comes.
    for limit in 1..10 {
        let before = format!("ulimit -u {limit}");
        let done = after("bash", &before, &["-n", "1", "true"])
            .with(|c| if geteuid().is_root() { c.uid(54_321).gid(54_321).current_dir("/") } else { c })
            .finish();
        assert!(!done.stderr.contains("panicked"), "{done:?}");
        assert_eq!(done.code == 0, done.stderr.is_empty(), "{done:?}");
        assert!(done.code == 0 || done.stderr.contains("cannot start"), "{done:?}");
        assert_eq!(
            done.stderr.contains("cannot start rank"),
            done.stderr.contains("(ulimit -u, or pids.max"),
            "{done:?}"
        );
    }
}

#[test]
fn what_is_missing_of_proc_and_dev_is_named() {
    let without = |what: &str, words: &[&str]| {
        let mut command = unshared(&["-m"], &format!("{what} && exec \"$0\" run \"$@\""))?;
        command.args(words);
        Some(Job::of(command).finish())
    };
    let Some(done) = without("umount -l /proc", &["-n", "1", "true"]) else { return };
    done.expect(1, &["cannot read /proc/self/status: ", "must be mounted"]);
    let Some(done) = without("mount -t tmpfs tmpfs /dev", &["-n", "2", "true"]) else { return };
    done.expect(1, &["cannot open /dev/null: No such file"]);
}

#[test]
fn a_system_call_that_is_refused_is_named() {
    for (call, name) in [(libc::SYS_prctl, "prctl(PR_SET_CHILD_SUBREAPER)"), (libc::SYS_signalfd4, "signalfd")] {
        let refused = move || {
            forbid(call);
            Ok(())
        };
        // SAFETY: it makes system calls, and allocates only to say what has failed.
        let job = Job::new(&["-n", "1", "true"]).with(|command| unsafe { command.pre_exec(refused) });
        job.finish().expect(1, &[&format!("han run: {name} failed: Operation not permitted")]);
    }
}
