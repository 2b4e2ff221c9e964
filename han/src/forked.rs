//! Whether this process is still the one that joined the job, or a child that it has forked, with a copy of all of it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use shm_core::sys::fork;

/// Forks between the first process that joined a job and this one. A static, because handlers of `fork` belong to the process
/// and cannot be given a value.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A process, as told from those that it forks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one, from which children are told from now on, if the system lets us.
    pub(crate) fn this() -> Self {
        static FORKS_ARE_SEEN: OnceLock<bool> = OnceLock::new();
        FORKS_ARE_SEEN.get_or_init(|| fork::in_children(count));
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is it.
    #[inline]
    pub(crate) fn is_this(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}
