//! Everything that libhan keeps for its process between calls.

use crate::error::{Code, Failure, Outcome};
use crate::handle::{Handle, Kind, Slab};
use crate::memory::Memory;
use crate::request::Request;
use han::{Communicator, Context, UserOperator};

impl Kind for Communicator {
    const TAG: u8 = 0xc1;
}

impl Kind for Request {
    const TAG: u8 = 0xc2;
}

impl Kind for UserOperator {
    const TAG: u8 = 0xc3;
}

/// The state behind the [gate](crate::gate), from `han_init` to `han_finalize`.
///
/// Fields are dropped from top to bottom: nothing outlives the context.
pub(crate) struct Process {
    pub(crate) requests: Slab<Request>,
    pub(crate) operators: Slab<UserOperator>,
    pub(crate) communicators: Slab<Communicator>,
    pub(crate) world: Handle<Communicator>,
    pub(crate) memory: Memory,
    pub(crate) context: Context,
}

impl Process {
    pub(crate) fn new(context: Context) -> Outcome<Self> {
        let mut communicators = Slab::new();
        let world = communicators.insert(context.world().clone()).ok_or_else(too_many)?;
        Ok(Self {
            requests: Slab::new(),
            operators: Slab::new(),
            communicators,
            world,
            memory: Memory::default(),
            context,
        })
    }

    /// The communicator of a handle.
    #[inline]
    pub(crate) fn communicator(&self, handle: Handle<Communicator>) -> Outcome<&Communicator> {
        match self.communicators.get(handle) {
            Some(communicator) => Ok(communicator),
            None => Err(unknown(Code::Comm, "comm", handle.is_null())),
        }
    }
}

/// The failure of a handle that no table knows.
#[cold]
pub(crate) fn unknown(code: Code, argument: &str, is_null: bool) -> Failure {
    let what = match code {
        Code::Comm => "communicator",
        Code::Request => "request",
        _ => "operator",
    };
    let message = if is_null {
        format!("{argument} is the null {what}")
    } else {
        format!("{argument} is no {what}, or it has been freed")
    };
    Failure::new(code, message)
}

/// The failure of a table that is full.
pub(crate) fn too_many() -> Failure {
    Failure::new(Code::NoMemory, "too many live handles of this kind (2^24)")
}
