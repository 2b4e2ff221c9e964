//! Functions that libfabric calls, replaced for libfabric alone.
//!
//! A shared object calls the functions of others through a table of addresses of its own, which the loader fills in. A
//! list of relocations says which entry is for which function.
#![allow(unsafe_code)] // Reads what the loader has mapped, and writes to such tables.
#![allow(clippy::cast_possible_truncation)] // Addresses and lengths, on machines of 64 bits.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Entries of the dynamic section (System V ABI, chapter 5).
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;
/// Relocations that put a function's address into the table: `GLOB_DAT` and `JUMP_SLOT`.
const ADDRESSES: [u32; 2] = if cfg!(target_arch = "aarch64") { [1025, 1026] } else { [6, 7] };

#[repr(C)]
struct Dynamic {
    tag: u64,
    value: u64,
}

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    _addend: i64,
}

/// A function that is to be called in place of another.
struct Replacement<'a> {
    name: &'a CStr,
    with: *mut c_void,
    replaced: usize,
}

/// Has libfabric, with the providers that it has loaded by now, call `with` for the function `name` from now on.
/// Returns how many entries of tables have changed; none on machines other than x86-64 and aarch64.
///
/// # Safety
/// `with` has the type of that function and does what its callers expect.
pub unsafe fn replace(name: &CStr, with: *const c_void) -> usize {
    if cfg!(not(all(target_pointer_width = "64", any(target_arch = "x86_64", target_arch = "aarch64")))) {
        return 0;
    }
    stay(with);
    let mut replacement = Replacement { name, with: with.cast_mut(), replaced: 0 };
    // SAFETY: the function has the type that is asked for, and `replacement` lives until all have been visited.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut replacement).cast()) };
    replacement.replaced
}

/// Keeps the object of a function for as long as the process lives: libfabric is never closed either.
fn stay(function: *const c_void) {
    // SAFETY: all of its fields may be zero.
    let mut place: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for, and there is room for the answer.
    if unsafe { libc::dladdr(function, &raw mut place) } != 0 {
        // SAFETY: the name is the loader's. Nothing is loaded, and the program itself, which is refused, stays anyway.
        unsafe { libc::dlopen(place.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

/// Whether an object is libfabric or a provider of its.
fn is_libfabric(path: &CStr) -> bool {
    let path = path.to_string_lossy();
    let file = path.rsplit('/').next().unwrap_or(&path);
    file.starts_with("libfabric.so") || file.ends_with("-fi.so")
}

unsafe extern "C" fn visit(object: *mut libc::dl_phdr_info, _: libc::size_t, data: *mut c_void) -> c_int {
    // SAFETY: the loader describes an object that is loaded, and it stays so during this call.
    let object = unsafe { &*object };
    // SAFETY: `replace` gave the address of a `Replacement`, which nobody else uses meanwhile.
    let replacement = unsafe { &mut *data.cast::<Replacement<'_>>() };
    // SAFETY: the name is null or ends in a zero.
    if !object.dlpi_name.is_null() && is_libfabric(unsafe { CStr::from_ptr(object.dlpi_name) }) {
        replacement.replace_in(object);
    }
    0
}

impl Replacement<'_> {
    fn replace_in(&mut self, object: &libc::dl_phdr_info) {
        let base = object.dlpi_addr;
        // SAFETY: the loader counts the headers that it gives.
        let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
        let segment = |kind: u32| headers.iter().find(|header| header.p_type == kind);
        let Some(dynamic) = segment(libc::PT_DYNAMIC) else { return };
        let entries = (base + dynamic.p_vaddr) as *const Dynamic;
        // SAFETY: the object's dynamic section is mapped there, as long as its header says.
        let entries = unsafe { slice::from_raw_parts(entries, dynamic.p_memsz as usize / size_of::<Dynamic>()) };
        let value = |tag: u64| entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.value);
        // Some loaders leave addresses as they are in the file.
        let address = |tag: u64| value(tag).map(|at| if at < base { base + at } else { at });
        let (Some(names), Some(symbols)) = (address(DT_STRTAB), address(DT_SYMTAB)) else { return };
        // The loader has sealed whole pages only.
        let sealed = segment(libc::PT_GNU_RELRO).map_or(0..0, |header| {
            let start = base + header.p_vaddr;
            start..(start + header.p_memsz) / page_bytes() * page_bytes()
        });
        for (list, bytes) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
            let (Some(list), Some(bytes)) = (address(list), value(bytes)) else { continue };
            // SAFETY: the list is mapped there, as long as the section says; x86-64 and aarch64 have addends.
            let relocations =
                unsafe { slice::from_raw_parts(list as *const Relocation, bytes as usize / size_of::<Relocation>()) };
            for relocation in relocations.iter().filter(|one| ADDRESSES.contains(&(one.info as u32))) {
                let symbol = (symbols as *const libc::Elf64_Sym).wrapping_add((relocation.info >> 32) as usize);
                // SAFETY: the relocation names a symbol of the object's table.
                let at = names + u64::from(unsafe { (*symbol).st_name });
                // SAFETY: a symbol's name is a string of the object's.
                if unsafe { CStr::from_ptr(at as *const _) } == self.name {
                    self.put(base + relocation.offset, &sealed);
                }
            }
        }
    }

    /// Changes the entry at `at`, which is read-only if it is `sealed`.
    fn put(&mut self, at: u64, sealed: &Range<u64>) {
        let page = (at / page_bytes() * page_bytes()) as *mut c_void;
        let protect = |access: c_int| {
            // SAFETY: all of the page is of the object's sealed data, which stays as it is; while the page is writable
            // nobody else writes to it.
            unsafe { libc::mprotect(page, page_bytes() as usize, access) == 0 }
        };
        let is_sealed = sealed.contains(&at);
        if is_sealed && !protect(libc::PROT_READ | libc::PROT_WRITE) {
            return;
        }
        // SAFETY: the entry is an aligned pointer, now writable; calls through it read it whole.
        unsafe { AtomicPtr::from_ptr(at as *mut *mut c_void) }.store(self.with, Ordering::Release);
        if is_sealed {
            protect(libc::PROT_READ);
        }
        self.replaced += 1;
    }
}

fn page_bytes() -> u64 {
    // SAFETY: takes no pointers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    static CALLS: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn getifaddrs(list: *mut *mut libc::ifaddrs) -> c_int {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: libfabric has room for the list's address.
        unsafe { libc::getifaddrs(list) }
    }

    #[test]
    fn libfabrics_calls_go_elsewhere_and_others_do_not() {
        let _turn = crate::tests::turn();
        let library = crate::library().expect("libfabric is installed");
        // SAFETY: it has the type of the function, and calls it.
        assert_ne!(unsafe { replace(c"getifaddrs", getifaddrs as *const c_void) }, 0);
        // SAFETY: as above, for a function that nothing calls.
        assert_eq!(unsafe { replace(c"no_such_function", getifaddrs as *const c_void) }, 0);
        let mut own = std::ptr::null_mut();
        // SAFETY: there is room for the list's address.
        assert_eq!(unsafe { libc::getifaddrs(&raw mut own) }, 0);
        // SAFETY: it is a list of that function's.
        unsafe { libc::freeifaddrs(own) };
        assert_eq!(CALLS.load(Ordering::Relaxed), 0, "this program's calls are its own");
        let mut found = std::ptr::null_mut();
        let (none, hints) = (std::ptr::null(), std::ptr::null());
        // SAFETY: nothing is asked for in particular, and there is room for the list's address.
        unsafe { library.fi_getinfo((1 << 16) + 17, none, none, 0, hints, &raw mut found) };
        assert_ne!(CALLS.load(Ordering::Relaxed), 0, "libfabric has looked for interfaces");
        if !found.is_null() {
            // SAFETY: it is a list of libfabric's.
            unsafe { library.fi_freeinfo(found) };
        }
    }

    #[test]
    fn libfabric_and_its_providers_are_known_by_their_names() {
        for name in [c"/usr/lib/x86_64-linux-gnu/libfabric.so.1", c"/opt/libfabric/libtcp-fi.so"] {
            assert!(is_libfabric(name), "{name:?}");
        }
        for name in [c"", c"/lib/libc.so.6", c"/usr/lib/libfabric-tools.txt"] {
            assert!(!is_libfabric(name), "{name:?}");
        }
    }
}
