//! Signals sent to `han run`.

use nix::sys::signal::{Signal, kill};
use shm_core::sys::process;

use crate::harness::{Job, Running, children, eventually, state};

/// Two ranks that say when they are ready; a test run in the background may ignore some signals, which
/// they must not inherit.
fn ready(script: &str) -> Running {
    for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
        process::restore_default_action(signal).unwrap();
    }
    let script = format!("{script}; echo ready; while :; do sleep 0.05; done");
    let mut job = Job::script(&["-n", "2"], &script).start();
    job.wait_for_lines("ready", 2);
    job
}

#[test]
fn signals_reach_every_rank() {
    use Signal::{SIGALRM, SIGHUP, SIGINT, SIGPROF, SIGPWR, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU};
    let of_users = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let of_limits = [SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGPWR];
    for signal in of_users.into_iter().chain(of_limits) {
        let name = signal.as_str().trim_start_matches("SIG");
        let job = ready(&format!("trap 'echo rank $PMI_RANK got {name} >&2; exit 0' {name}"));
        job.signal(signal);
        job.finish().expect(0, &[&format!("rank 0 got {name}\n"), &format!("rank 1 got {name}\n")]);
    }
}

#[test]
fn ranks_that_die_of_a_forwarded_signal_give_its_code() {
    let job = ready("true");
    job.signal(Signal::SIGTERM);
    job.finish().expect(143, &["was killed by signal 15 (SIGTERM)"]);
    let job = ready("true");
    job.signal(Signal::SIGINT);
    job.finish().expect(130, &["was killed by signal 2 (SIGINT)"]);
}

#[test]
fn stopped_ranks_act_on_a_signal_that_ends_them() {
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        let job = ready("echo ready; kill -STOP $$");
        let supervisor = children(job.pid())[0];
        eventually("the ranks are stopped", || children(supervisor).iter().all(|rank| state(*rank) == Some('T')));
        job.signal(signal);
        let code = 128 + signal as i32;
        job.finish().expect(code, &[&format!("was killed by signal {} ({signal})", signal as i32)]);
    }
}

/// As systemd and `pkill -f` do.
#[test]
fn a_signal_to_all_processes_of_a_job_is_one_wish() {
    // Sometimes the kernel makes one of the two.
    for _ in 0..10 {
        let job = ready("trap : INT; trap 'exit 0' USR1");
        for pid in [children(job.pid())[0], job.pid()] {
            kill(pid, Signal::SIGINT).unwrap();
        }
        // It comes to the ranks behind the other two.
        job.signal(Signal::SIGUSR1);
        let done = job.finish();
        done.expect(0, &[]);
        assert!(!done.stderr.contains("second signal"), "{done:?}");
    }
}

#[test]
fn a_second_signal_kills_ranks_that_ignore_the_first() {
    let job = ready("trap '' TERM INT");
    job.signal(Signal::SIGINT);
    job.signal(Signal::SIGTERM);
    job.finish().expect(128 + 2, &["killing ranks 0-1"]);
}

#[test]
fn ignored_signals_stay_ignored() {
    process::restore_default_action(Signal::SIGINT).unwrap();
    for signal in [Signal::SIGHUP, Signal::SIGTERM] {
        let mut command = std::process::Command::new("/bin/sh");
        let ranks = "trap \"echo got it >&2; exit 0\" INT; echo ready; while :; do sleep 0.05; done";
        let name = signal.as_str().trim_start_matches("SIG");
        let script = format!("trap '' {name}; exec \"$0\" run -n 2 -- sh -c '{ranks}'");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_han")]);
        let mut job = Job::of(command).start();
        job.wait_for_lines("ready", 2);
        job.signal(signal);
        // As the second wish to end it would kill.
        job.signal(Signal::SIGINT);
        job.finish().expect(0, &["got it\ngot it\n"]);
    }
}

#[test]
fn stop_and_continue_hold_the_whole_job() {
    // A shell that is stopped in vfork waits for its child, which is stopped too, and never shows that it is.
    let mut job = Job::script(&["-n", "2"], "echo ready; exec sleep 300").start();
    job.wait_for_lines("ready", 2);
    let supervisor = children(job.pid())[0];
    let stopped = || children(supervisor).iter().chain(&[job.pid()]).all(|pid| state(*pid) == Some('T'));
    job.signal(Signal::SIGTSTP);
    eventually("launcher and ranks are stopped", stopped);
    job.signal(Signal::SIGCONT);
    eventually("launcher and ranks run again", || {
        children(supervisor).iter().chain(&[job.pid()]).all(|pid| state(*pid) != Some('T'))
    });
    job.signal(Signal::SIGUSR1);
    job.finish().expect(128 + 10, &["was killed by signal 10 (SIGUSR1)"]);
}
