//! The testbed that is up: nodes out of one machine, made by the script `benches/testbed`.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Result;
use crate::network::Network;

/// Where the kernel's scheduler is told whether sessions share the cores, or all processes.
const AUTOGROUPS: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// What tables of times over nodes say of the scheduler.
pub const GROUPS_OFF: &str = "Over nodes the scheduler's autogroups were off";

/// Whether this kernel has autogroups, so that [`Testbed::up_to_measure`] switches them off.
#[must_use]
pub fn has_groups() -> bool {
    Path::new(AUTOGROUPS).exists()
}

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
        Self::hold(script, network, &[])
    }

    /// The same with the scheduler's autogroups off, as long as it is up: else ranks whose launchers start a session a
    /// node spin beside those that they wait for.
    ///
    /// # Errors
    /// As of [`Self::up`].
    pub fn up_to_measure(script: &Path, network: Network) -> Result<Self> {
        Self::hold(script, network, &["--groups", "off"])
    }

    fn hold(script: &Path, network: Network, options: &[&str]) -> Result<Self> {
        let name = format!("bench-peers-{}", std::process::id());
        let mut command = Command::new(script);
        command.args(["hold", &network.nodes.to_string(), "--name", &name]).args(options);
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
