//! Nodes to run on: network namespaces of this machine, which `benches/testbed` makes.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/testbed");

/// Says that there is to be no test with namespaces, where they cannot be made.
const NO_NETNS: &str = "HAN_TEST_NO_NETNS";

/// Some nodes, until it is dropped, or this process has ended in whatever way.
pub(crate) struct Testbed {
    name: String,
    switch: Child,
}

impl Testbed {
    /// Brings `nodes` nodes up. `None`, and a line that says so, if the tests are to do without.
    pub(crate) fn up(nodes: usize) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        if env::var_os(NO_NETNS).is_some_and(|value| value == "1") {
            eprintln!("SKIPPED: {NO_NETNS}=1, so no network namespaces are made and nothing is tested on them");
            return None;
        }
        let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(SCRIPT);
        command.args(["hold", &nodes.to_string(), "--name", &name]);
        let mut switch = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(switch.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            let mut why = String::new();
            switch.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("no nodes to test on: {why}(where they cannot be made, {NO_NETNS}=1 leaves these tests out)");
        }
        Some(Self { name, switch })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Process id of the switch.
    pub(crate) fn switch(&self) -> u32 {
        self.switch.id()
    }

    /// What stands after `--node-exec`.
    pub(crate) fn prefix(&self) -> String {
        format!("{SCRIPT} exec --name {} {{node}}", self.name)
    }

    /// Runs `testbed COMMAND --name NAME WORDS` to its end, which must be a good one; what it printed.
    pub(crate) fn command(&self, command: &str, words: &[&str]) -> String {
        let output = Command::new(SCRIPT).args([command, "--name", &self.name]).args(words).output().unwrap();
        assert!(output.status.success(), "testbed {command} {words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What `command` printed on `node`.
    pub(crate) fn on_node(&self, node: usize, command: &[&str]) -> String {
        self.command("exec", &[&[node.to_string().as_str()], command].concat())
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // The end of its input is the end of the testbed.
        self.switch.stdin.take();
        let _ = self.switch.wait();
    }
}

/// The processes of a testbed.
pub(crate) fn processes(name: &str) -> Vec<String> {
    let list = Command::new(SCRIPT).arg("list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    list.lines().filter(|line| line.split(' ').next() == Some(name)).map(str::to_owned).collect()
}
