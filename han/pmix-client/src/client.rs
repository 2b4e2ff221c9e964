//! The calls of PMIx that a job's start takes, as safe functions.
#![allow(unsafe_code)] // Calls a C library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;
use std::slice;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::library::{self as sys, Exports, library};
use crate::{Error, Result};

/// This process's connection to its launcher.
///
/// Dropped without [`finalize`](Self::finalize), it looks to the launcher like a rank that died.
pub struct Client {
    library: &'static Exports,
    own: sys::pmix_proc_t,
    size: usize,
}

/// A value of the launcher's, which is given back when it is dropped.
struct Value(ptr::NonNull<sys::pmix_value_t>);

impl Client {
    /// Joins the job that this process was started in.
    ///
    /// # Errors
    /// libpmix cannot be opened, or finds no launcher.
    pub fn connect() -> Result<Self> {
        let library = library()?;
        let mut own = MaybeUninit::<sys::pmix_proc_t>::zeroed();
        // SAFETY: there is room for a process's name; no information is passed.
        let status = unsafe { library.PMIx_Init(own.as_mut_ptr(), ptr::null_mut(), 0) };
        check(library, status, || "PMIx_Init".to_owned()).map_err(|why| Error::NoLauncher(Box::new(why)))?;
        // SAFETY: zeros are a value of this type, which is made of numbers, and the call has written the name there.
        let own = unsafe { own.assume_init() };
        let mut client = Self { library, own, size: 0 };
        // A key of the whole job.
        client.size = client.number(RANK_WILDCARD, sys::PMIX_JOB_SIZE)?;
        if client.rank() >= client.size {
            let got = format!("{} ranks, and this is rank {}", client.size, client.rank());
            return Err(Error::Unexpected { call: "PMIx_Get of the job's size".to_owned(), got });
        }
        Ok(client)
    }

    /// This rank, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.own.rank as usize
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The launcher's name for the node of this rank, if it tells one.
    ///
    /// # Errors
    /// The launcher answers with something else than a name.
    pub fn node(&self) -> Result<Option<String>> {
        let call = || "PMIx_Get of this rank's node".to_owned();
        match self.get(self.own.rank, sys::PMIX_HOSTNAME, call)? {
            None => Ok(None),
            Some(value) => match value.string() {
                Some(name) => Ok(Some(name.to_string_lossy().into_owned())),
                None => Err(Error::Unexpected { call: call(), got: value.what() }),
            },
        }
    }

    /// Sets a value of this rank, not empty, that all ranks see after the next [`fence`](Self::fence).
    ///
    /// # Errors
    /// The launcher refuses.
    pub fn put(&mut self, key: &str, bytes: &[u8]) -> Result<()> {
        let name = c_text(key);
        let mut value = MaybeUninit::<sys::pmix_value_t>::zeroed();
        // SAFETY: zeros are a value of this type: numbers and null pointers.
        let value = unsafe { value.assume_init_mut() };
        value.type_ = sys::PMIX_BYTE_OBJECT;
        // It is only read.
        value.data.bo =
            sys::pmix_byte_object_t { bytes: bytes.as_ptr().cast::<c_char>().cast_mut(), size: bytes.len() };
        // SAFETY: the key is a C string; the value says where its bytes are and how many; all of it is copied.
        let status = unsafe { self.library.PMIx_Put(sys::PMIX_GLOBAL, name.as_ptr(), value) };
        check(self.library, status, || format!("PMIx_Put of {} bytes as {key}", bytes.len()))?;
        // SAFETY: takes nothing.
        let status = unsafe { self.library.PMIx_Commit() };
        check(self.library, status, || "PMIx_Commit".to_owned())
    }

    /// Waits until all ranks have come, and brings what they have put here. Launchers do not tell of ranks that have ended
    /// without a word, or never come: `waiting` is asked now and then, with the time so far, and may give up.
    ///
    /// # Errors
    /// A rank has gone, or the launcher; or what `waiting` gives up with: then this client is of no more use.
    pub fn fence<E: From<Error>>(
        &mut self,
        mut waiting: impl FnMut(Duration) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let info = MaybeUninit::<sys::pmix_info_t>::zeroed();
        // SAFETY: zeros are a value of this type: numbers and null pointers.
        let mut info = unsafe { info.assume_init() };
        copy_text(&mut info.key, sys::PMIX_COLLECT_DATA);
        info.value.type_ = sys::PMIX_BOOL;
        info.value.data.flag = true;
        let mut given = Box::new((self.process(RANK_WILDCARD), info));
        let passed = Arc::new(Passed::default());
        let told = Arc::into_raw(Arc::clone(&passed)).cast_mut().cast();
        let (everybody, info) = (&raw const given.0, &raw mut given.1);
        // SAFETY: one process's name and one piece of information, which live until the fence is over, and for ever if it
        // is given up; `fence_passed` takes the share that `told` is.
        let status = unsafe { self.library.PMIx_Fence_nb(everybody, 1, info, 1, Some(fence_passed), told) };
        let refused = |status| check(self.library, status, || "PMIx_Fence".to_owned());
        if status == sys::PMIX_OPERATION_SUCCEEDED {
            // SAFETY: then it is not called, and the share is still this function's.
            drop(unsafe { Arc::from_raw(told.cast_const().cast::<Passed>()) });
            return Ok(());
        }
        refused(status)?;
        let since = Instant::now();
        loop {
            if let Some(status) = passed.wait(ASK_EVERY) {
                return Ok(refused(status)?);
            }
            if let Err(why) = waiting(since.elapsed()) {
                std::mem::forget(given);
                return Err(why);
            }
        }
    }

    /// What a rank had put before the last fence.
    ///
    /// # Errors
    /// It had put nothing under this key.
    pub fn fetch(&self, rank: usize, key: &str) -> Result<Vec<u8>> {
        let call = || format!("PMIx_Get of {key} of rank {rank}");
        let name = c_text(key);
        let number = u32::try_from(rank).unwrap_or(RANK_WILDCARD);
        let value = self.get(number, name.as_bytes_with_nul(), call)?;
        let value =
            value.ok_or_else(|| Error::Refused { call: call(), reason: "it has put no such value".to_owned() })?;
        value.bytes().ok_or_else(|| Error::Unexpected { call: call(), got: value.what() })
    }

    /// Asks the launcher to end the job with exit code `code`.
    pub fn abort(&mut self, code: i32, why: &str) {
        let why = c_text(why);
        // SAFETY: the reason is a C string; no processes are named, which stands for all.
        unsafe { self.library.PMIx_Abort(code, why.as_ptr(), ptr::null_mut(), 0) };
    }

    /// Says good-bye to the launcher.
    ///
    /// # Errors
    /// The launcher has gone.
    pub fn finalize(&mut self) -> Result<()> {
        // SAFETY: no information is passed.
        let status = unsafe { self.library.PMIx_Finalize(ptr::null(), 0) };
        check(self.library, status, || "PMIx_Finalize".to_owned())
    }

    fn number(&self, rank: u32, key: &[u8]) -> Result<usize> {
        let call = || format!("PMIx_Get of {}", String::from_utf8_lossy(key).trim_end_matches('\0'));
        let value = self.get(rank, key, call)?;
        let value = value.ok_or_else(|| Error::Refused { call: call(), reason: "not known".to_owned() })?;
        value.number().ok_or_else(|| Error::Unexpected { call: call(), got: value.what() })
    }

    /// The value under `key`, which ends in a zero; `None` if there is none.
    fn get(&self, rank: u32, key: &[u8], call: impl FnOnce() -> String) -> Result<Option<Value>> {
        let process = self.process(rank);
        let mut value = ptr::null_mut();
        let key = key.as_ptr().cast::<c_char>();
        // SAFETY: a process's name, a C string, no information, and room for a pointer.
        let status = unsafe { self.library.PMIx_Get(&raw const process, key, ptr::null(), 0, &raw mut value) };
        if status == sys::PMIX_ERR_NOT_FOUND {
            return Ok(None);
        }
        check(self.library, status, call)?;
        Ok(ptr::NonNull::new(value).map(Value))
    }

    /// A rank of this job, for libpmix.
    fn process(&self, rank: u32) -> sys::pmix_proc_t {
        sys::pmix_proc_t { rank, ..self.own }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("rank", &self.rank()).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Value {
    fn number(&self) -> Option<usize> {
        // SAFETY: libpmix made the value, and it is not given back yet.
        let value = unsafe { self.0.as_ref() };
        if value.type_ != sys::PMIX_UINT32 {
            return None;
        }
        // SAFETY: the type says which member there is.
        let number = unsafe { value.data.uint32 };
        usize::try_from(number).ok()
    }

    fn string(&self) -> Option<&CStr> {
        // SAFETY: libpmix made the value, and it is not given back yet.
        let value = unsafe { self.0.as_ref() };
        // SAFETY: all members of the union begin where it begins; this one is looked at if the type says so.
        let text = unsafe { value.data.string };
        if value.type_ != sys::PMIX_STRING || text.is_null() {
            return None;
        }
        // SAFETY: a C string that belongs to the value.
        Some(unsafe { CStr::from_ptr(text) })
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        // SAFETY: libpmix made the value, and it is not given back yet.
        let value = unsafe { self.0.as_ref() };
        if value.type_ != sys::PMIX_BYTE_OBJECT {
            return None;
        }
        // SAFETY: the type says which member there is.
        let object = unsafe { value.data.bo };
        if object.bytes.is_null() {
            return Some(Vec::new());
        }
        // SAFETY: the object says where its bytes are and how many.
        Some(unsafe { slice::from_raw_parts(object.bytes.cast::<u8>(), object.size) }.to_vec())
    }

    /// For messages.
    fn what(&self) -> String {
        // SAFETY: libpmix made the value, and it is not given back yet.
        let value = unsafe { self.0.as_ref() };
        format!("a value of type {}", value.type_)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: libpmix made the value, and it is not given back yet.
        let value = unsafe { self.0.as_ref() };
        let own: *mut c_void = match value.type_ {
            // SAFETY: the type says which member there is.
            sys::PMIX_BYTE_OBJECT => unsafe { value.data.bo }.bytes.cast(),
            // SAFETY: the type says which member there is.
            sys::PMIX_STRING => unsafe { value.data.string }.cast(),
            _ => ptr::null_mut(),
        };
        // SAFETY: the bytes came from malloc, as the standard says of all that PMIx_Get gives, and belong to the value.
        unsafe { libc::free(own) };
        // SAFETY: so did the value itself; nobody else has it.
        unsafe { libc::free(self.0.as_ptr().cast()) };
    }
}

/// Time between two questions whether to go on waiting.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// What becomes of a fence, as libpmix's own thread tells.
#[derive(Default)]
struct Passed {
    status: Mutex<Option<c_int>>,
    told: Condvar,
}

impl Passed {
    /// Its status, if it is there within that time.
    fn wait(&self, limit: Duration) -> Option<c_int> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(status, limit, |status| status.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Called by libpmix when a fence is over.
unsafe extern "C" fn fence_passed(status: c_int, passed: *mut c_void) {
    // SAFETY: `fence` has made a share for this call, which comes once.
    let passed = unsafe { Arc::from_raw(passed.cast_const().cast::<Passed>()) };
    *passed.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    passed.told.notify_one();
}

/// All ranks of a job; the header's constant is an expression that bindgen does not evaluate.
const RANK_WILDCARD: u32 = u32::MAX - 1;

fn check(library: &Exports, status: c_int, call: impl FnOnce() -> String) -> Result<()> {
    if status == sys::PMIX_SUCCESS {
        return Ok(());
    }
    // SAFETY: takes a number.
    let text = unsafe { library.PMIx_Error_string(status) };
    let reason = if text.is_null() {
        format!("status {status}")
    } else {
        // SAFETY: a constant C string of the library's.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    Err(Error::Refused { call: call(), reason })
}

/// Text up to its first zero, for C.
fn c_text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// Copies a text that ends in a zero.
fn copy_text(room: &mut [c_char], text: &[u8]) {
    room.iter_mut().zip(text).for_each(|(room, byte)| *room = byte.cast_signed());
}
