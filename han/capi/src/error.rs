//! Error codes, and the sentence of the last failure of each thread.
#![allow(unsafe_code)] // Exports C symbols.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::ManuallyDrop;

use han::ErrorKind;

/// The codes of `enum han_error` that are not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Arg = 1,
    Buffer = 2,
    Count = 3,
    Datatype = 4,
    Op = 5,
    Root = 6,
    Comm = 7,
    Request = 8,
    Truncate = 9,
    NotInitialized = 10,
    Initialized = 11,
    Thread = 12,
    Config = 13,
    Bootstrap = 14,
    PeerDied = 15,
    Mismatch = 16,
    Aborted = 17,
    Timeout = 18,
    Unsupported = 19,
    System = 20,
    NoMemory = 21,
    Internal = 22,
}

pub(crate) const SUCCESS: c_int = 0;

impl Code {
    /// Every code with its meaning, in the order of the codes.
    pub(crate) const ALL: [(Self, &'static CStr); 22] = [
        (Self::Arg, c"invalid argument"),
        (Self::Buffer, c"invalid buffer"),
        (Self::Count, c"invalid count"),
        (Self::Datatype, c"invalid datatype"),
        (Self::Op, c"invalid operator"),
        (Self::Root, c"invalid root"),
        (Self::Comm, c"invalid communicator"),
        (Self::Request, c"invalid request"),
        (Self::Truncate, c"text buffer too small"),
        (Self::NotInitialized, c"han is not initialized"),
        (Self::Initialized, c"han has been initialized before"),
        (Self::Thread, c"another han call is in progress"),
        (Self::Config, c"invalid configuration"),
        (Self::Bootstrap, c"start-up failed"),
        (Self::PeerDied, c"a rank died"),
        (Self::Mismatch, c"the ranks disagree on the operation"),
        (Self::Aborted, c"the job was aborted"),
        (Self::Timeout, c"timeout"),
        (Self::Unsupported, c"not supported"),
        (Self::System, c"a system call failed"),
        (Self::NoMemory, c"out of memory"),
        (Self::Internal, c"internal error"),
    ];
}

/// Why a call failed: the code that it returns and the sentence for `han_last_error_message`.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// What the body of an exported function returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<han::Error> for Failure {
    fn from(error: han::Error) -> Self {
        Self::new(code_of(error.kind()), error.to_string())
    }
}

fn code_of(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::InvalidArgument => Code::Arg,
        ErrorKind::Config => Code::Config,
        ErrorKind::Startup => Code::Bootstrap,
        ErrorKind::PeerDied => Code::PeerDied,
        ErrorKind::Mismatch => Code::Mismatch,
        ErrorKind::Aborted => Code::Aborted,
        ErrorKind::Timeout => Code::Timeout,
        ErrorKind::System => Code::System,
        ErrorKind::NoMemory => Code::NoMemory,
        ErrorKind::InUse => Code::Thread,
        ErrorKind::Finalized | ErrorKind::Forked => Code::NotInitialized,
        ErrorKind::Internal => Code::Internal,
        // Kinds that are gained later.
        _ => Code::Unsupported,
    }
}

thread_local! {
    /// The last message, and the one before it: a program may ask for the message and fail in one expression, in either order.
    ///
    /// Never dropped, so that they are there when a thread is being torn down and in handlers of `atexit`.
    static MESSAGES: RefCell<ManuallyDrop<[Option<CString>; 2]>> = const { RefCell::new(ManuallyDrop::new([None, None])) };
}

/// Keeps the failure's sentence for `han_last_error_message` and gives the code to return.
pub(crate) fn report(function: &str, failure: &Failure) -> c_int {
    let text = format!("{function}: {}", failure.message).replace('\0', " ");
    MESSAGES.with_borrow_mut(|messages| {
        messages.swap(0, 1);
        messages[0] = CString::new(text).ok();
    });
    failure.code as c_int
}

/// The last failure's sentence on this thread, for Fortran and for messages of this crate.
pub(crate) fn last_message() -> String {
    let text = MESSAGES.with_borrow(|messages| messages[0].as_ref().map(|text| text.to_string_lossy().into_owned()));
    text.unwrap_or_default()
}

/// The meaning of a code, for codes that exist and others.
pub(crate) fn meaning(code: c_int) -> &'static CStr {
    if code == SUCCESS {
        return c"success";
    }
    let known = Code::ALL.iter().find(|(known, _)| *known as c_int == code);
    known.map_or(c"not an error code of han", |(_, text)| text)
}

#[unsafe(no_mangle)]
pub extern "C" fn han_strerror(error: c_int) -> *const c_char {
    meaning(error).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn han_last_error_message() -> *const c_char {
    // The pointer outlives the borrow because only `report`, on this thread, replaces texts.
    MESSAGES.with_borrow(|messages| messages[0].as_ref().map_or(c"".as_ptr(), |text| text.as_ptr()))
}
