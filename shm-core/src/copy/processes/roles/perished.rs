//! Who makes the job's memory dies while the others map it.

use std::process;
use std::thread;
use std::time::Duration;

use super::Files;
use crate::error::Error;
use crate::exchange::{Exchange, ExchangeError};
use crate::job::Job;
use crate::settings::Settings;

/// An exchange in which rank 0 is found dead once it has said where its memory is, and that all is well: its files have gone, as a
/// process that is killed loses them, and then it ends.
struct Perishing(Files);

// SAFETY: all get what all have said, by the files.
unsafe impl Exchange for Perishing {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        // Introductions, where the memory is, and whether all have it.
        match (self.rank(), self.0.round()) {
            (0, 2) => {
                // SAFETY: it takes no pointers.
                assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) }, 0);
                self.0.tell(bytes)?;
                thread::sleep(Duration::from_millis(100));
                process::exit(0)
            }
            (_, 1) => {
                let all = self.0.allgather(bytes);
                if self.rank() > 0 {
                    self.0.hear(0)?;
                }
                all
            }
            _ => self.0.allgather(bytes),
        }
    }
}

pub(super) fn play(exchange: Files, settings: Settings) {
    let error = Job::together(&mut Perishing(exchange), settings).unwrap_err();
    assert!(matches!(error, Error::PeerDied { rank: 0, .. }), "{error}");
    assert!(error.to_string().ends_with("; pending here was the start of the job"), "{error}");
}
