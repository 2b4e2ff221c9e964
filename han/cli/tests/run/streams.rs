//! Standard input, output and error.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::process::{ChildStdin, Command, Stdio};

use nix::sys::signal::Signal;

use crate::harness::{Job, Running, eventually};
use crate::ranks;

fn file_with(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

#[test]
fn standard_input_goes_to_rank_0_only() {
    let done =
        Job::script(&["-n", "3", "--label"], "cat; echo end").with(|c| c.stdin(file_with(b"one\ntwo\n"))).finish();
    done.expect(0, &[]);
    assert_eq!(done.sorted_lines(), ["[0] end", "[0] one", "[0] two", "[1] end", "[2] end"]);
}

#[test]
fn bytes_pass_unchanged() {
    let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut out = tempfile::tempfile().unwrap();
    let sink = out.try_clone().unwrap();
    let job = Job::new(&["-n", "2", "cat"]).with(|c| c.stdin(file_with(&bytes)).stdout(sink));
    job.finish().expect(0, &[]);
    let mut copy = Vec::new();
    out.rewind().unwrap();
    out.read_to_end(&mut copy).unwrap();
    assert!(copy == bytes, "{} bytes came of {}", copy.len(), bytes.len());
}

#[test]
fn input_that_rank_0_does_not_read_is_left_for_others() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"printf '1\n2\n' | { "$0" run -n 2 -- true; cat; }"#, env!("CARGO_BIN_EXE_han")]);
    assert_eq!(Job::of(command).finish().stdout, "1\n2\n");
}

#[test]
fn who_writes_input_learns_that_rank_0_reads_no_more() {
    for program in ["exec <&-", "[ $PMI_RANK = 1 ] || exit 0"] {
        let folder = tempfile::tempdir().unwrap();
        let line = format!(
            r#"(yes; : > "$D/told") | "$0" run -n 2 --timeout 60 -- sh -c '{program}; until [ -e "$D/told" ]; do sleep 0.05; done'"#
        );
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_han")]).env("D", folder.path());
        Job::of(command).finish().expect(0, &[]);
    }
}

/// `han run -n 2 --timeout 250 -- sh -c SCRIPT` on a terminal of its own, made by script(1), and its keyboard.
///
/// What comes out includes the terminal's echo.
fn on_a_terminal(script: &str) -> (Running, ChildStdin) {
    // Without exec, a shell that stays between them would take the keyboard's signals too.
    typed_to(&format!("exec '{}' run -n 2 --timeout 250 -- sh -c '{script}'", env!("CARGO_BIN_EXE_han")))
}

/// The same with a shell's `line`.
fn typed_to(line: &str) -> (Running, ChildStdin) {
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", line, "/dev/null"]);
    let mut job = Job::of(command).with(|c| c.stdin(Stdio::piped())).start();
    let keyboard = job.child.stdin.take().unwrap();
    (job, keyboard)
}

#[test]
fn what_is_typed_reaches_rank_0() {
    let program = r#"[ $PMI_RANK = 1 ] || { read line; echo "rank 0 got <$line>"; }"#;
    let (job, mut keyboard) = on_a_terminal(program);
    keyboard.write_all(b"hello there\n").unwrap();
    let done = job.finish();
    assert!(done.stdout.contains("rank 0 got <hello there>"), "{done:?}");
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn what_is_typed_after_rank_0_is_left_for_what_comes_after_the_job() {
    // The front has a thread more as long as it reads the terminal.
    let rank = r#"[ $PMI_RANK = 0 ] && exit; read -r pid name state front rest </proc/$PPID/stat; \
                  until [ "$(ls /proc/$front/task | wc -l)" = 1 ]; do sleep 0.05; done; echo nobody reads"#;
    let han = env!("CARGO_BIN_EXE_han");
    let line =
        format!("'{han}' run -n 2 --timeout 60 -- sh -c '{rank}' && read line && echo \"the shell got <$line>\"");
    let (mut job, mut keyboard) = typed_to(&line);
    let mut lines = BufReader::new(job.child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("nobody reads")));
    keyboard.write_all(b"hello there\n").unwrap();
    assert!(lines.any(|line| line.contains("the shell got <hello there>")));
    assert_eq!(job.finish().code, 0);
}

#[test]
fn control_c_reaches_every_rank_once() {
    // Rank 0 may end only after both have counted; a second signal would come at once.
    let program = r#"trap "echo rank \$PMI_RANK interrupted; n=1" INT; echo ready; \
                     while [ -z "$n" ]; do sleep 0.05; done; sleep 0.3"#;
    let (mut job, mut keyboard) = on_a_terminal(program);
    let mut lines = BufReader::new(job.child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.by_ref().filter(|line| line.contains("ready")).take(2).count(), 2);
    keyboard.write_all(b"\x03").unwrap();
    let mut rest: Vec<String> = lines.filter(|line| line.contains("interrupted")).collect();
    rest.iter_mut().for_each(|line| *line = line.trim_start_matches("^C").trim_end().to_owned());
    rest.sort_unstable();
    assert_eq!(rest, ["rank 0 interrupted", "rank 1 interrupted"]);
    assert_eq!(job.finish().code, 0);
}

#[test]
fn control_c_ends_the_loop_of_a_shell_around_the_job() {
    let rank = r"echo ready \$0; [ \$0 = 2 ] || exec sleep 300";
    let bash = format!(r#"for job in 1 2; do "$0" run -n 2 -- sh -c "{rank}" $job; done; echo went on"#);
    let (mut job, mut keyboard) = typed_to(&format!("exec bash -c '{bash}' '{}'", env!("CARGO_BIN_EXE_han")));
    let mut lines = BufReader::new(job.child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.by_ref().filter(|line| line.contains("ready 1")).take(2).count(), 2);
    keyboard.write_all(b"\x03").unwrap();
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("was killed by signal 2 (SIGINT)")), "{rest:?}");
    assert!(!rest.iter().any(|line| line.contains("ready 2") || line.contains("went on")), "{rest:?}");
    assert_eq!(job.finish().code, 130);
}

#[test]
fn control_c_at_a_search_comes_back_when_the_job_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuning.toml").display().to_string();
    let line = format!("trap : INT; '{}' tune -n 2 --quick --out '{out}'; echo code $?", env!("CARGO_BIN_EXE_han"));
    let (mut job, mut keyboard) = typed_to(&line);
    let mut screen = BufReader::new(job.child.stdout.take().unwrap());
    // The search draws how far it is.
    screen.read_until(b'%', &mut Vec::new()).unwrap();
    keyboard.write_all(b"\x03").unwrap();
    let mut rest = Vec::new();
    screen.read_to_end(&mut rest).unwrap();
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.contains("code 130") && !rest.contains("second signal"), "{rest}");
    job.finish();
}

#[test]
fn control_z_does_not_stop_a_job_that_no_shell_could_continue() {
    let program = r#"echo ready; [ $PMI_RANK = 1 ] || { read line; echo "rank 0 got <$line>"; }"#;
    let (mut job, mut keyboard) = on_a_terminal(program);
    let mut lines = BufReader::new(job.child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.by_ref().filter(|line| line.contains("ready")).take(2).count(), 2);
    keyboard.write_all(b"\x1ahello\n").unwrap();
    assert!(lines.any(|line| line.contains("rank 0 got <hello>")));
    assert_eq!(job.finish().code, 0);
}

#[test]
fn a_rank_that_the_terminal_stops_is_told_of() {
    let (mut job, mut keyboard) = on_a_terminal("[ $PMI_RANK = 1 ] || read line </dev/tty");
    let mut lines = BufReader::new(job.child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("rank 0 (pid ") && line.contains("was stopped by SIGTTIN: it uses")));
    keyboard.write_all(b"\x03").unwrap();
    assert!(lines.any(|line| line.contains("was killed by signal 2 (SIGINT)")));
    assert_eq!(job.finish().code, 130);
}

#[test]
fn labels_tell_the_rank_on_both_streams() {
    let done = Job::script(&["-n", "2", "--label"], "echo out; printf 'no newline' >&2").finish();
    assert_eq!(done.sorted_lines(), ["[0] out", "[1] out"]);
    let mut errors: Vec<&str> = done.stderr.lines().collect();
    errors.sort_unstable();
    assert_eq!(errors, ["[0] no newline", "[1] no newline"]);
}

#[test]
fn lines_of_different_ranks_and_streams_never_mix() {
    let mut out = tempfile::tempfile().unwrap();
    let (stdout, stderr) = (out.try_clone().unwrap(), out.try_clone().unwrap());
    let job = ranks::job(&["-n", "4"], "chatter").with(|c| c.stdout(stdout).stderr(stderr));
    job.finish().expect(0, &[]);
    out.rewind().unwrap();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for line in BufReader::new(out).lines().map(Result::unwrap).filter(|line| line.starts_with("chatter")) {
        *seen.entry(line).or_default() += 1;
    }
    assert_eq!(seen, ranks::chatter_lines(4));
}

#[test]
fn long_lines_stay_whole_and_have_one_label() {
    // Rank 0 writes its line in halves; the others print theirs meanwhile.
    let script = "x() { head -c 100000 /dev/zero | tr '\\0' x; }; \
                  if [ $PMI_RANK = 0 ]; then x; sleep 1; x; echo; else sleep 0.5; echo short; fi";
    let mut out = tempfile::tempfile().unwrap();
    let sink = out.try_clone().unwrap();
    Job::script(&["-n", "3", "--label"], script).with(|c| c.stdout(sink)).finish().expect(0, &[]);
    out.rewind().unwrap();
    let mut lines: Vec<String> = BufReader::new(out).lines().map(Result::unwrap).collect();
    lines.sort_unstable();
    assert_eq!(lines, [format!("[0] {}", "x".repeat(200_000)), "[1] short".to_owned(), "[2] short".to_owned()]);
}

#[test]
fn streams_that_share_a_pipe_do_not_cut_each_others_lines() {
    // Rank 0 may show half a line, as a prompt.
    let script = "[ $PMI_RANK = 0 ] && exit; x=$(head -c 10000 /dev/zero | tr '\\0' x); i=0; \
                  while [ $((i += 1)) -le 300 ]; do echo $x; echo short >&2; done";
    let (out, writer) = io::pipe().unwrap();
    let job = Job::script(&["-n", "3"], script).with(|c| c.stdout(writer.try_clone().unwrap()).stderr(writer)).start();
    let mut counts = HashMap::new();
    for line in BufReader::new(out).lines() {
        *counts.entry(line.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(counts, HashMap::from([("x".repeat(10_000), 600), ("short".to_owned(), 600)]));
    job.finish().expect(0, &[]);
}

#[test]
fn last_words_stand_behind_what_was_printed_before_in_a_log_of_both_streams() {
    for _ in 0..20 {
        let mut log = tempfile::tempfile().unwrap();
        let (stdout, stderr) = (log.try_clone().unwrap(), log.try_clone().unwrap());
        let script = "seq 1 3000; echo last words >&2; exit 3";
        Job::script(&["-n", "1"], script).with(|c| c.stdout(stdout).stderr(stderr)).finish().expect(3, &[]);
        let mut text = String::new();
        log.rewind().unwrap();
        log.read_to_string(&mut text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[2999], lines[3000]), (3002, "3000", "last words"));
        assert!(lines[3001].ends_with("exited with code 3"), "{}", lines[3001]);
    }
}

#[test]
fn a_prompt_is_shown_before_its_answer() {
    let script = "[ $PMI_RANK = 0 ] || exit 0; printf 'name? '; read x; echo \"hello $x\"";
    let mut job = Job::script(&["-n", "2", "--label"], script).with(|c| c.stdin(Stdio::piped())).start();
    let mut prompt = [0; 10];
    let mut stdout = job.child.stdout.take().unwrap();
    stdout.read_exact(&mut prompt).unwrap();
    assert_eq!(&prompt, b"[0] name? ");
    job.child.stdin.take().unwrap().write_all(b"you\n").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "hello you\n");
    job.finish().expect(0, &[]);
}

#[test]
fn a_reader_who_leaves_ends_the_job() {
    let mut job = Job::new(&["-n", "2", "yes"]).start();
    let mut stdout = BufReader::new(job.child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "y\n");
    drop(stdout);
    job.finish().expect(141, &["was killed by signal 13 (SIGPIPE)"]);
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let done = Job::script(&["-n", "1"], "echo result").with(|c| c.stdout(full)).finish();
    done.expect(1, &["cannot write to standard output: No space left on device"]);
}

#[test]
fn a_reader_who_does_not_read_holds_up_neither_timeout_nor_signals() {
    let mut job = Job::new(&["-n", "1", "--timeout", "5", "--grace", "250", "yes"]).start();
    let unread = job.child.stdout.take();
    let mut errors = BufReader::new(job.child.stderr.take().unwrap()).lines();
    assert!(errors.next().unwrap().unwrap().contains("--timeout of 5 s; rank 0 was still running"));
    eventually("only the launcher's two processes are left", || job.processes().len() == 2);
    job.signal(Signal::SIGTERM);
    job.finish().expect(124, &[]);
    drop(unread);
}

#[test]
fn a_reader_who_does_not_read_errors_holds_up_neither_timeout_nor_failure() {
    let script = "[ $PMI_RANK = 1 ] && { sleep 2; exit 3; }; while :; do echo many words >&2; done";
    for (options, code) in [(["-n", "1", "--timeout", "2"], 124), (["-n", "2", "--grace", "1"], 3)] {
        let mut job = Job::script(&options, script).start();
        let mut unread = job.child.stderr.take().unwrap();
        unread.read_exact(&mut [0; 4]).unwrap();
        eventually("only the launcher's two processes are left", || job.processes().len() == 2);
        drop(unread);
        job.finish().expect(code, &[]);
    }
}

const LOST: &str = "nobody takes the output: the rest of what the ranks have printed is lost";

#[test]
fn a_timeout_bounds_the_wait_for_a_reader_who_does_not_read() {
    for (program, code) in [("yes", 124), ("head -c 300000 /dev/zero", 124), ("yes & sleep 1; exit 3", 3)] {
        let mut job = Job::script(&["-n", "1", "--timeout", "2", "--grace", "1"], program).start();
        let unread = job.child.stdout.take();
        job.finish().expect(code, &[LOST]);
        drop(unread);
    }
}

#[test]
fn output_that_a_user_gives_up_is_no_success() {
    // More than the reader's pipe holds; the forwarder takes it.
    let mut job = Job::script(&["-n", "1"], "head -c 100000 /dev/zero; echo done >&2").start();
    let unread = job.child.stdout.take();
    let mut errors = BufReader::new(job.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(errors.next().as_deref(), Some("done"));
    eventually("only the launcher's two processes are left", || job.processes().len() == 2);
    job.signal(Signal::SIGTERM);
    assert_eq!(errors.next().as_deref(), Some(&*format!("han run: {LOST}")));
    job.finish().expect(143, &[]);
    drop(unread);
}
