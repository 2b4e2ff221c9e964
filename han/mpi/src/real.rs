//! The MPI library's own functions, by the names that its profiling interface keeps free: `PMPI_...`.
//!
//! They are looked up once, when the program calls MPI for the first time; what an older library lacks is `None`.
#![allow(unsafe_code)] // Looks up and calls foreign functions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use shm_core::say;

use crate::abi::{Flavour, Word};

type Input = *const c_void;
type Output = *mut c_void;
/// `MPI_Comm_copy_attr_function`.
pub(crate) type CopyAttribute = extern "C" fn(Word, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// `MPI_Comm_delete_attr_function`.
pub(crate) type DeleteAttribute = extern "C" fn(Word, c_int, *mut c_void, *mut c_void) -> c_int;
/// `MPI_Comm_errhandler_function`, without the arguments that some libraries add.
pub(crate) type Handler = extern "C" fn(*mut Word, *mut c_int);
/// `MPI_Grequest_query_function`.
pub(crate) type Query = extern "C" fn(*mut c_void, *mut c_void) -> c_int;
/// `MPI_Grequest_free_function`.
pub(crate) type Free = extern "C" fn(*mut c_void) -> c_int;
/// `MPI_Grequest_cancel_function`.
pub(crate) type Cancel = extern "C" fn(*mut c_void, c_int) -> c_int;

macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*);)*
     $(? $newer:ident = $newer_name:literal ($($newer_argument:ty),*);)*) => {
        /// Functions of the MPI library; all return an MPI error code. Those with a question mark, not every one has.
        pub(crate) struct Real {
            $(pub(crate) $field: unsafe extern "C-unwind" fn($($argument),*) -> c_int,)*
            $(pub(crate) $newer: Option<unsafe extern "C-unwind" fn($($newer_argument),*) -> c_int>,)*
        }

        impl Real {
            fn load() -> Result<Self, &'static CStr> {
                Ok(Self {
                    $(
                        // SAFETY: the MPI standard gives the function of this name this type, handles being words in
                        // registers in every binary interface.
                        $field: unsafe { function($name) }.ok_or($name)?,
                    )*
                    $(
                        // SAFETY: as above.
                        $newer: unsafe { function($newer_name) },
                    )*
                })
            }
        }
    };
}

functions! {
    init = c"PMPI_Init" (*mut c_int, *mut *mut *mut c_char);
    init_thread = c"PMPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize = c"PMPI_Finalize" ();
    abort = c"PMPI_Abort" (Word, c_int);
    query_thread = c"PMPI_Query_thread" (*mut c_int);
    comm_dup = c"PMPI_Comm_dup" (Word, *mut Word);
    comm_free = c"PMPI_Comm_free" (*mut Word);
    comm_size = c"PMPI_Comm_size" (Word, *mut c_int);
    comm_rank = c"PMPI_Comm_rank" (Word, *mut c_int);
    comm_test_inter = c"PMPI_Comm_test_inter" (Word, *mut c_int);
    comm_group = c"PMPI_Comm_group" (Word, *mut Word);
    group_translate_ranks = c"PMPI_Group_translate_ranks" (Word, c_int, *const c_int, Word, *mut c_int);
    group_free = c"PMPI_Group_free" (*mut Word);
    comm_create_keyval = c"PMPI_Comm_create_keyval" (CopyAttribute, DeleteAttribute, *mut c_int, *mut c_void);
    comm_free_keyval = c"PMPI_Comm_free_keyval" (*mut c_int);
    comm_set_attr = c"PMPI_Comm_set_attr" (Word, c_int, *mut c_void);
    comm_create_errhandler = c"PMPI_Comm_create_errhandler" (Handler, *mut Word);
    comm_set_errhandler = c"PMPI_Comm_set_errhandler" (Word, Word);
    comm_get_errhandler = c"PMPI_Comm_get_errhandler" (Word, *mut Word);
    errhandler_free = c"PMPI_Errhandler_free" (*mut Word);
    comm_call_errhandler = c"PMPI_Comm_call_errhandler" (Word, c_int);
    get_version = c"PMPI_Get_version" (*mut c_int, *mut c_int);
    add_error_code = c"PMPI_Add_error_code" (c_int, *mut c_int);
    error_string = c"PMPI_Error_string" (c_int, *mut c_char, *mut c_int);
    add_error_string = c"PMPI_Add_error_string" (c_int, *const c_char);
    grequest_start = c"PMPI_Grequest_start" (Query, Free, Cancel, *mut c_void, *mut Word);
    grequest_complete = c"PMPI_Grequest_complete" (Word);
    test = c"PMPI_Test" (*mut Word, *mut c_int, *mut c_void);
    type_size = c"PMPI_Type_size_x" (Word, *mut i64);
    type_get_extent = c"PMPI_Type_get_extent" (Word, *mut isize, *mut isize);
    type_get_true_extent = c"PMPI_Type_get_true_extent" (Word, *mut isize, *mut isize);
    type_create_keyval = c"PMPI_Type_create_keyval" (CopyAttribute, DeleteAttribute, *mut c_int, *mut c_void);
    type_free_keyval = c"PMPI_Type_free_keyval" (*mut c_int);
    type_get_attr = c"PMPI_Type_get_attr" (Word, c_int, *mut c_void, *mut c_int);
    type_set_attr = c"PMPI_Type_set_attr" (Word, c_int, *mut c_void);
    type_get_envelope = c"PMPI_Type_get_envelope" (Word, *mut c_int, *mut c_int, *mut c_int, *mut c_int);
    type_get_contents = c"PMPI_Type_get_contents" (Word, c_int, c_int, c_int, *mut c_int, *mut isize, *mut Word);
    type_free = c"PMPI_Type_free" (*mut Word);
    get_library_version = c"PMPI_Get_library_version" (*mut c_char, *mut c_int);
    pack = c"PMPI_Pack" (Input, c_int, Word, Output, c_int, *mut c_int, Word);
    unpack = c"PMPI_Unpack" (Input, c_int, *mut c_int, Output, c_int, Word, Word);
    op_commutative = c"PMPI_Op_commutative" (Word, *mut c_int);
    reduce_local = c"PMPI_Reduce_local" (Input, Output, c_int, Word, Word);
    barrier = c"PMPI_Barrier" (Word);
    allgather = c"PMPI_Allgather" (Input, c_int, Word, Output, c_int, Word, Word);
    exscan = c"PMPI_Exscan" (Input, Output, c_int, Word, Word, Word);
    ? abi_get_version = c"PMPI_Abi_get_version" (*mut c_int, *mut c_int);
    ? type_get_envelope_c = c"PMPI_Type_get_envelope_c" (Word, *mut i64, *mut i64, *mut i64, *mut i64, *mut c_int);
    ? type_get_contents_c = c"PMPI_Type_get_contents_c"
        (Word, i64, i64, i64, i64, *mut c_int, *mut isize, *mut i64, *mut Word);
    ? pack_c = c"PMPI_Pack_c" (Input, i64, Word, Output, i64, *mut i64, Word);
    ? unpack_c = c"PMPI_Unpack_c" (Input, i64, *mut i64, Output, i64, Word, Word);
}

/// `MPI_SUCCESS`, in every binary interface.
pub(crate) const SUCCESS: c_int = 0;

/// Room for an `MPI_Status` of any binary interface.
#[repr(align(16))]
pub(crate) struct StatusRoom {
    bytes: [u8; 256],
}

impl StatusRoom {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; 256] }
    }

    pub(crate) const fn place(&mut self) -> *mut c_void {
        (&raw mut self.bytes).cast()
    }
}

/// The library's functions.
#[inline]
pub(crate) fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get_or_init(|| Real::load().unwrap_or_else(|missing| lacks(missing)))
}

impl Real {
    /// The major version of the standard's binary interface, if the library has the function.
    pub(crate) fn abi_version(&self) -> Option<c_int> {
        let (mut major, mut minor) = (-1, -1);
        // SAFETY: it stores two numbers, and may be called before MPI_Init.
        let code = unsafe { self.abi_get_version?(&raw mut major, &raw mut minor) };
        (code == SUCCESS).then_some(major)
    }

    /// What `ask` stores into an `int`; `None` if it returns an error, or stores nothing: where a program's error handler comes
    /// back, MPICH 5 returns none.
    pub(crate) fn number(ask: impl FnOnce(*mut c_int) -> c_int) -> Option<c_int> {
        const NOTHING: c_int = c_int::MIN;
        let mut number = NOTHING;
        (ask(&raw mut number) == SUCCESS && number != NOTHING).then_some(number)
    }

    /// A key for attributes of communicators that duplicates do not take over; MPI is initialised.
    pub(crate) fn comm_keyval(&self, delete: DeleteAttribute) -> Option<c_int> {
        // SAFETY: the functions have the types that MPI asks for.
        Self::number(|keyval| unsafe { (self.comm_create_keyval)(not_copied, delete, keyval, ptr::null_mut()) })
    }

    /// The same for attributes of datatypes.
    pub(crate) fn type_keyval(&self, delete: DeleteAttribute) -> Option<c_int> {
        // SAFETY: as above.
        Self::number(|keyval| unsafe { (self.type_create_keyval)(not_copied, delete, keyval, ptr::null_mut()) })
    }
}

extern "C" fn not_copied(
    _: Word,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    is_copied: *mut c_int,
) -> c_int {
    // SAFETY: the MPI library gives a pointer to a flag.
    unsafe { is_copied.write(0) };
    SUCCESS
}

/// Bytes of the library's description of itself, at most.
const MAX_LIBRARY_VERSION: usize = 8192;

/// What the library calls itself, for instance `MPICH Version: 5.0.2`, in one line.
pub(crate) fn library_version() -> String {
    let mut text = vec![0_u8; MAX_LIBRARY_VERSION + 1];
    let place = text.as_mut_ptr().cast();
    // SAFETY: there is room for the longest description of any library, and for its length.
    let length = Real::number(|length| unsafe { (real().get_library_version)(place, length) });
    text.truncate(length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0));
    let text = String::from_utf8_lossy(&text);
    text.split(['\n', '\0', ',']).next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where the program finds the variable `name`, if any library that is loaded has it.
pub(crate) fn variable(name: &CStr) -> Option<Word> {
    // The program's own search order: variables may have been copied into the executable.
    // SAFETY: `name` is a C string; a look-up has no other conditions.
    let place = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let place = if place.is_null() { in_library(name) } else { place };
    (!place.is_null()).then(|| place.addr())
}

/// The function `name` behind this library in the search order.
///
/// # Safety
/// `F` is the type of a pointer to that function.
pub(crate) unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: as above.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    let place = if next.is_null() { in_library(name) } else { next };
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the caller vouches that `F` is a pointer to the function at `place`, which is not null.
    (!place.is_null()).then(|| unsafe { std::mem::transmute_copy(&place) })
}

/// A tool's function `name` behind this library in the search order: one that is not in the MPI library, which may be out of the
/// order's sight. A stand-in for MPI, in a program without one, has it as well, and the call ends there.
///
/// # Safety
/// As for [`function`].
#[cold]
pub(crate) unsafe fn tool<F: Copy>(name: &CStr) -> Option<F> {
    let object = |name: &CStr| {
        // SAFETY: `name` is a C string; a look-up has no other conditions.
        let place = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        let mut found = MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: there is room for what is known of the place, if it is in any object.
        let is_known = !place.is_null() && unsafe { libc::dladdr(place, found.as_mut_ptr()) } != 0;
        // SAFETY: it was stored.
        is_known.then(|| unsafe { found.assume_init() }.dli_fbase)
    };
    let is_tools = Some(object(name)?) != object(c"PMPI_Get_library_version");
    // SAFETY: as the caller vouches.
    if is_tools { unsafe { function(name) } } else { None }
}

/// The symbol in an MPI library that is loaded out of the search order's sight, as interpreters do with their modules.
fn in_library(name: &CStr) -> *mut c_void {
    static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut library = LIBRARY.load(Ordering::Relaxed);
    if library.is_null() {
        library = loaded().unwrap_or(ptr::null_mut());
        LIBRARY.store(library, Ordering::Relaxed);
    }
    // SAFETY: `name` is a C string, and the handle stays open.
    if library.is_null() { library } else { unsafe { libc::dlsym(library, name.as_ptr()) } }
}

/// A handle of the first library that is loaded, has a name as MPI libraries have, and is one. Vendors add to that name.
fn loaded() -> Option<*mut c_void> {
    unsafe extern "C" fn note(object: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader tells of an object.
        let name = unsafe { (*object).dlpi_name };
        // SAFETY: its name is a C string.
        let name = unsafe { CStr::from_ptr(name) };
        let file = name.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if file.starts_with(b"libmpi") {
            // SAFETY: these are the names below.
            unsafe { &mut *names.cast::<Vec<CString>>() }.push(name.to_owned());
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the function takes what it is given here, and is not called afterwards.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names.into_iter().find_map(|name| {
        // SAFETY: nothing is loaded by this, so no code runs here.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        // SAFETY: the handle is open.
        let is_mpi = !library.is_null() && !unsafe { libc::dlsym(library, c"PMPI_Init".as_ptr()) }.is_null();
        is_mpi.then_some(library) // and it stays
    })
}

/// The handle that stands in the program's memory.
///
/// # Safety
/// There is one at `place`.
pub(crate) unsafe fn handle_at(place: *const Word, flavour: Flavour) -> Word {
    if flavour == Flavour::Mpich {
        // SAFETY: as the caller vouches; a handle of this interface has 32 bits.
        return unsafe { place.cast::<u32>().read() } as Word;
    }
    // SAFETY: as the caller vouches.
    unsafe { place.read() }
}

/// Puts a handle into the program's memory.
///
/// # Safety
/// There is one at `place`.
#[allow(clippy::cast_possible_truncation)] // A handle of that interface has 32 bits.
pub(crate) unsafe fn put_handle(place: *mut Word, flavour: Flavour, handle: Word) {
    if flavour == Flavour::Mpich {
        // SAFETY: as in `handle_at`.
        unsafe { place.cast::<u32>().write(handle as u32) };
    } else {
        // SAFETY: as the caller vouches.
        unsafe { place.write(handle) };
    }
}

/// The library's function of this name and type, if it has it, looked up when it is first needed. Programs call what an
/// older library lacks, too: they see it here, and take the library for a newer one.
macro_rules! perhaps {
    ($name:expr, $kind:ty) => {{
        static FUNCTION: std::sync::OnceLock<Option<$kind>> = std::sync::OnceLock::new();
        // SAFETY: the MPI standard gives the function of this name this type.
        *FUNCTION.get_or_init(|| unsafe { $crate::real::function::<$kind>($name) })
    }};
}

/// The same for one that every library has since MPI 3.
macro_rules! theirs {
    ($name:expr, $kind:ty) => {
        $crate::real::perhaps!($name, $kind).unwrap_or_else(|| $crate::real::lacks($name))
    };
}

pub(crate) use {perhaps, theirs};

/// A name that ends in a zero.
pub(crate) const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Ends a program whose MPI library is older than MPI 3, or that has none.
#[cold]
pub(crate) fn lacks(name: &CStr) -> ! {
    say(&format!(
        "libhan_mpi: no MPI library in this process has {}; set LD_PRELOAD for MPI programs alone",
        name.to_string_lossy()
    ));
    std::process::exit(1)
}
