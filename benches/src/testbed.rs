//! The testbed that is up: nodes out of one machine, made by the script `benches/testbed`.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Result;
use crate::network::Network;

/// The variable by which the script knows the testbed that is meant.
pub const NAME_VARIABLE: &str = "HAN_TESTBED";

/// A testbed that goes when this is dropped, or its process ends in whatever way.
pub struct Testbed {
    /// What is up.
    pub network: Network,
    name: String,
    switch: Child,
}

impl Testbed {
    /// Brings one up with the script `script`.
    ///
    /// # Errors
    /// What the script says: network namespaces need root and a few tools.
    pub fn up(script: &Path, network: Network) -> Result<Self> {
        let name = format!("bench-peers-{}", std::process::id());
        let mut command = Command::new(script);
        command.args(["hold", &network.nodes.to_string(), "--name", &name]);
        if let Some(rate) = network.rate.for_tc() {
            command.args(["--rate", &rate]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut switch = command.spawn().map_err(|error| format!("{}: {error}", script.display()))?;
        let mut line = String::new();
        if let Some(output) = switch.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        if line != "ready\n" {
            let mut why = String::new();
            if let Some(mut errors) = switch.stderr.take() {
                errors.read_to_string(&mut why)?;
            }
            switch.wait()?;
            return Err(format!("no nodes: {}", why.trim()).into());
        }
        Ok(Self { network, name, switch })
    }

    /// Makes `command` mean this testbed.
    pub fn enter(&self, command: &mut Command) {
        command.env(NAME_VARIABLE, &self.name);
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // The end of its input is the end of the testbed.
        self.switch.stdin.take();
        let _ = self.switch.wait();
    }
}

/// What launchers call in place of ssh: it stands beside the script.
#[must_use]
pub fn ssh(script: &Path) -> PathBuf {
    script.with_file_name("testbed-ssh")
}
