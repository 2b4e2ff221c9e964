//! The scripts of `batch/`, as far as they need no batch system.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `rendezvous.sh` for two ranks here, in a folder of its own whose name has a blank.
fn rendezvous(name: &str, program: &[&str]) -> (Command, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("batch {name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let ssh = folder.join("ssh");
    fs::write(&ssh, "#!/bin/bash\nexec bash -c \"$2\"\n").expect("a file");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("a program");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    // Whoever runs the tests in the background may have it ignore interrupts, and a script cannot change that.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT", "bash"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/batch/rendezvous.sh"))
        .arg("localhost localhost")
        .args(program);
    command.current_dir(&folder).env("SSH", ssh).env("PORT", port.to_string());
    (command, folder)
}

fn secrets(folder: &Path) -> usize {
    let names = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("a file").file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".han-secret")).count()
}

#[test]
fn ranks_meet_in_a_folder_with_a_blank() {
    let (mut script, folder) = rendezvous("meet", &[env!("CARGO_BIN_EXE_hello")]);
    let output = script.output().expect("bash starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("rank 0 of 2") && text.contains("rank 1 of 2"), "{text}");
    assert_eq!(secrets(&folder), 0);
}

#[test]
fn an_interrupt_ends_what_was_started() {
    let rank = "trap 'echo ended; kill $!; exit' TERM; sleep 60 > /dev/null & echo started; wait; echo over";
    let (mut script, folder) = rendezvous("interrupt", &["bash", "-c", rank]);
    let mut script = script.stdout(Stdio::piped()).spawn().expect("bash starts");
    let mut ranks = BufReader::new(script.stdout.take().expect("its output"));
    for _ in 0..2 {
        let mut line = String::new();
        ranks.read_line(&mut line).expect("a line");
        assert_eq!(line, "started\n");
    }
    let sent = Command::new("kill").args(["-INT", &script.id().to_string()]).status().expect("kill starts");
    let mut rest = String::new();
    ranks.read_to_string(&mut rest).expect("until both have ended");
    assert!(sent.success() && rest == "ended\nended\n", "{rest}");
    assert_eq!((script.wait().expect("its end").code(), secrets(&folder)), (Some(130), 0));
}
