//! Ctrl-C at a command that runs a job as its child.

use std::io;
use std::process::Command;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use shm_core::sys::process;

/// Lets the job end first, which gets the keys' signals as well: as long as this lives, they wait here.
#[derive(Debug)]
pub(crate) struct KeysHeld {
    before: SigSet,
}

impl KeysHeld {
    /// For as long as `command` runs, which is to be started meanwhile.
    pub(crate) fn while_running(command: &mut Command) -> io::Result<Self> {
        let keys: SigSet = [Signal::SIGINT, Signal::SIGQUIT].into_iter().collect();
        let before = keys.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        process::unblock_signals(command);
        Ok(Self { before })
    }
}

impl Drop for KeysHeld {
    fn drop(&mut self) {
        // A signal that has come ends this process here.
        let _ = self.before.thread_set_mask();
    }
}
