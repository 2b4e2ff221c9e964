//! Where completions arrive.
#![allow(unsafe_code)] // libfabric is a C library.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use libfabric_sys as sys;

use super::{Domain, Object, failed, words};
use crate::error::Result;

/// What a message was posted with: the address of its notes.
pub type Context = *mut sys::fi_context2;

/// A message has ended.
#[derive(Debug)]
pub struct Event {
    /// What it was posted with; null for sends that took their bytes along.
    pub context: Context,
    /// Bytes that came; only told for receives.
    pub bytes: usize,
    /// The word beside it.
    pub word: u64,
    /// Its tag, for receives.
    pub tag: u64,
    /// Whether it failed.
    pub failure: Option<Failure>,
}

/// Why a message failed.
#[derive(Debug)]
pub struct Failure {
    /// libfabric's code, positive.
    pub code: i32,
    /// Bytes for which there was no room.
    pub excess_bytes: usize,
    /// The library's words, and the provider's where it has some.
    pub words: String,
}

/// A completion queue.
pub struct CompletionQueue {
    raw: Object<sys::fid_cq>,
    waits: bool,
    _domain: Rc<Domain>,
}

/// Completions that are read at once.
const BATCH: usize = 16;

impl CompletionQueue {
    /// A queue with room for `size` completions: who posts must not have more messages under way. With `waits`, it
    /// can be waited for.
    ///
    /// # Errors
    /// `fi_cq_open` fails; it does so for providers that cannot wait, if `waits` is asked for.
    #[doc(alias = "fi_cq_open")]
    pub fn open(domain: &Rc<Domain>, size: usize, waits: bool) -> Result<Rc<Self>> {
        let mut attributes = sys::fi_cq_attr {
            size,
            format: sys::FI_CQ_FORMAT_TAGGED,
            wait_obj: if waits { sys::FI_WAIT_UNSPEC } else { sys::FI_WAIT_NONE },
            ..Default::default()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the domain is open, the attributes are read during the call.
        let result = unsafe { sys::fi_cq_open(domain.raw(), &raw mut attributes, &raw mut raw, ptr::null_mut()) };
        // SAFETY: what the call has opened, and nobody else knows.
        let raw = unsafe { Object::opened("fi_cq_open", result, raw) }?;
        Ok(Rc::new(Self { raw, waits, _domain: Rc::clone(domain) }))
    }

    pub(super) fn fid(&self) -> *mut sys::fid {
        self.raw.fid()
    }

    /// Whether [`wait`](Self::wait) can be called.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Lets the provider work, and gives what has completed to `take`. Returns how much that was.
    ///
    /// # Errors
    /// The queue is broken.
    #[doc(alias = "fi_cq_read")]
    pub fn read(&self, mut take: impl FnMut(Event)) -> Result<usize> {
        let mut total = 0;
        loop {
            let mut entries = [const { MaybeUninit::<sys::fi_cq_tagged_entry>::uninit() }; BATCH];
            // SAFETY: the queue is open, its entries are of this type, and there is room for so many.
            let read = unsafe { sys::fi_cq_read(self.raw.raw(), entries.as_mut_ptr().cast(), BATCH) };
            let count = self.taken("fi_cq_read", read, &entries, &mut take)?;
            total += count;
            if count < BATCH {
                return Ok(total);
            }
        }
    }

    /// As [`read`](Self::read), but sleeps until there is something, for at most `limit` (of milliseconds).
    ///
    /// # Errors
    /// The queue is broken, or was opened without `waits`.
    #[doc(alias = "fi_cq_sread")]
    pub fn wait(&self, limit: Duration, mut take: impl FnMut(Event)) -> Result<usize> {
        let mut entries = [const { MaybeUninit::<sys::fi_cq_tagged_entry>::uninit() }; BATCH];
        let milliseconds = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
        let room = entries.as_mut_ptr().cast();
        // SAFETY: as in `read`; null is no condition.
        let read = unsafe { sys::fi_cq_sread(self.raw.raw(), room, BATCH, ptr::null(), milliseconds) };
        // A signal, or (with some providers) nothing within the limit.
        if read == -(sys::FI_EINTR as isize) || read == -(sys::FI_ETIMEDOUT as isize) {
            return Ok(0);
        }
        self.taken("fi_cq_sread", read, &entries, &mut take)
    }

    /// Hands on what `call` has read.
    fn taken(
        &self,
        call: &'static str,
        read: isize,
        entries: &[MaybeUninit<sys::fi_cq_tagged_entry>; BATCH],
        take: &mut impl FnMut(Event),
    ) -> Result<usize> {
        const AGAIN: isize = -(sys::FI_EAGAIN as isize);
        const ERROR: isize = -(sys::FI_EAVAIL as isize);
        match read {
            AGAIN => Ok(0),
            ERROR => self.read_failure(take),
            0.. => {
                let count = read.cast_unsigned().min(BATCH);
                for entry in &entries[..count] {
                    // SAFETY: the call has written so many entries.
                    let entry = unsafe { entry.assume_init_ref() };
                    take(Event {
                        context: entry.op_context.cast(),
                        bytes: entry.len,
                        word: entry.data,
                        tag: entry.tag,
                        failure: None,
                    });
                }
                Ok(count)
            }
            code => Err(failed(call, i32::try_from(-code).unwrap_or(i32::MAX))),
        }
    }

    /// Takes the failed message that bars the queue.
    #[doc(alias = "fi_cq_readerr")]
    fn read_failure(&self, take: &mut impl FnMut(Event)) -> Result<usize> {
        let mut entry = sys::fi_cq_err_entry::default();
        // SAFETY: the queue is open, and no room is offered for the provider's data.
        let read = unsafe { sys::fi_cq_readerr(self.raw.raw(), &raw mut entry, 0) };
        if read == 0 || read == -(sys::FI_EAGAIN as isize) {
            return Ok(0);
        }
        if read < 0 {
            return Err(failed("fi_cq_readerr", i32::try_from(-read).unwrap_or(i32::MAX)));
        }
        take(Event {
            context: entry.op_context.cast(),
            bytes: entry.len,
            word: entry.data,
            tag: entry.tag,
            failure: Some(Failure { code: entry.err, excess_bytes: entry.olen, words: self.words_of(&entry) }),
        });
        // A full batch, so that the reader comes again at once.
        Ok(BATCH)
    }

    /// The library's words for a failure, and the provider's if these say more.
    #[doc(alias = "fi_cq_strerror")]
    fn words_of(&self, entry: &sys::fi_cq_err_entry) -> String {
        let own = words(entry.err);
        let mut room = [0; 256];
        let (queue, data) = (self.raw.raw(), entry.err_data);
        // SAFETY: the entry is the last that was read from this queue, and the room is as large as is said.
        let text = unsafe { sys::fi_cq_strerror(queue, entry.prov_errno, data, room.as_mut_ptr(), room.len()) };
        if entry.prov_errno == 0 || text.is_null() {
            return own;
        }
        // SAFETY: not null, so a C string in the room or of the provider's.
        let provider = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        if provider.is_empty() || provider == own { own } else { format!("{own} (provider: {provider})") }
    }
}
