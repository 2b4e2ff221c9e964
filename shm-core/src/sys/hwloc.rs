//! What the machine is made of, from hwloc: sockets, NUMA nodes, caches, cores, as owned values.
//!
//! The library is opened when it is first asked, not linked: one rank of a job asks, the others need
//! not load it (nor libudev, nor hwloc's plugins), and programs with `libhan.a` within link statically.
//! The dozen functions that this takes are declared here. The crate `hwloc2` (2.2.0) keeps its own
//! private and offers neither synthetic descriptions, nor XML, nor filters, and its printing writes
//! beyond its buffer; `hwlocality` is an alpha version that needs libudev's headers to link.
#![allow(unsafe_code)] // hwloc is a C library

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong, c_void};
use std::io;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::sys::process::is_static;

/// Where the description of a machine comes from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// This machine; `HWLOC_XMLFILE` and the like replace it, as in every program that uses hwloc.
    ThisMachine,
    /// hwloc's synthetic description of a regular machine.
    Synthetic(&'a str),
    /// hwloc's XML, as `lstopo machine.xml` writes it.
    Xml(&'a str),
}

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A processor chip in its socket.
    Socket,
    /// Memory, with the cores to which it is near.
    Numa,
    /// A data cache, or one for data and instructions, of level 1 to 5.
    Cache(u8),
    /// An instruction cache of level 1 to 3.
    InstructionCache(u8),
    /// A core.
    Core,
    /// What the kernel schedules on: a core, or one of its hardware threads.
    Processor,
}

/// A part of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// The kernel's number, for processors and NUMA nodes.
    pub number: usize,
    /// The kernel's numbers of the processors in it, ascending.
    pub processors: Vec<usize>,
    /// Size of a cache, memory of a NUMA node, else 0.
    pub bytes: u64,
}

/// All objects of `kinds`: kind after kind, each in hwloc's logical order, neighbours side by side.
///
/// Devices are not looked for, and processors that this process may not use are there as well, so
/// that every process of a machine finds the same.
///
/// # Errors
/// The library is missing, or another hwloc than version 2; the call that failed; hwloc refuses the
/// description.
pub fn objects(source: Source<'_>, kinds: &[Kind]) -> Result<Vec<Object>> {
    let hwloc = Functions::load()?;
    // SAFETY: the function takes nothing and gives a constant.
    let version = unsafe { (hwloc.get_api_version)() };
    if !(0x2_0100..0x3_0000).contains(&version) {
        let reason = format!("its interface is {version:#x}: version 2.1 to 2.x of the library is needed");
        return Err(Error::System { api: "hwloc", reason });
    }
    let topology = RawTopology::new(&hwloc)?;
    topology.only(kinds)?;
    topology.load(source)?;
    kinds.iter().flat_map(|&kind| topology.objects(kind)).collect()
}

impl Kind {
    /// `hwloc_obj_type_t`.
    fn code(self) -> c_int {
        match self {
            Self::Socket => 1,
            Self::Core => 2,
            Self::Processor => 3,
            Self::Cache(level) => 3 + c_int::from(level),
            Self::InstructionCache(level) => 8 + c_int::from(level),
            Self::Numa => 13,
        }
    }
}

/// Owns hwloc's topology.
struct RawTopology<'a> {
    raw: NonNull<c_void>,
    hwloc: &'a Functions,
}

impl<'a> RawTopology<'a> {
    fn new(hwloc: &'a Functions) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: hwloc writes a pointer to a new topology, or fails and says so.
        let code = unsafe { (hwloc.topology_init)(&raw mut raw) };
        check("hwloc_topology_init", code)?;
        match NonNull::new(raw) {
            Some(raw) => Ok(Self { raw, hwloc }),
            None => Err(Error::System { api: "hwloc_topology_init", reason: "no topology".into() }),
        }
    }

    /// Leaves out what is not asked for (hwloc keeps processors and NUMA nodes in any case).
    fn only(&self, kinds: &[Kind]) -> Result<()> {
        // SAFETY: the topology is valid and not yet loaded.
        let code = unsafe { (self.hwloc.topology_set_all_types_filter)(self.raw.as_ptr(), KEEP_NONE) };
        check("hwloc_topology_set_all_types_filter", code)?;
        // A NUMA node that is not a socket nor a cache's cores has its processors from a group.
        let filters = kinds.iter().map(|kind| (kind.code(), KEEP_ALL)).chain([(GROUP, KEEP_STRUCTURE)]);
        for (kind, filter) in filters {
            // SAFETY: as above.
            let code = unsafe { (self.hwloc.topology_set_type_filter)(self.raw.as_ptr(), kind, filter) };
            check("hwloc_topology_set_type_filter", code)?;
        }
        Ok(())
    }

    fn load(&self, source: Source<'_>) -> Result<()> {
        let topology = self.raw.as_ptr();
        match source {
            Source::ThisMachine => {
                // The component that asks each processor itself binds this thread to one after the other;
                // the kernel's own description is enough. Where it is not built in, nothing is lost.
                // SAFETY: the topology is not yet loaded, the name is a C string.
                let _ = unsafe { (self.hwloc.topology_set_components)(topology, BLACKLIST, c"x86".as_ptr()) };
                // SAFETY: the topology is not yet loaded.
                let code = unsafe { (self.hwloc.topology_set_flags)(topology, INCLUDE_DISALLOWED) };
                check("hwloc_topology_set_flags", code)?;
            }
            Source::Synthetic(description) => {
                let text = c_string("hwloc_topology_set_synthetic", description)?;
                // SAFETY: the topology is not yet loaded; hwloc only reads the text, during the call.
                let code = unsafe { (self.hwloc.topology_set_synthetic)(topology, text.as_ptr()) };
                check("hwloc_topology_set_synthetic", code)?;
            }
            Source::Xml(xml) => {
                let text = c_string("hwloc_topology_set_xmlbuffer", xml)?;
                let length = c_int::try_from(text.as_bytes_with_nul().len()).unwrap_or(c_int::MAX);
                // SAFETY: the topology is not yet loaded; hwloc reads as many bytes as the text has, with its
                // closing zero, during the call.
                let code = unsafe { (self.hwloc.topology_set_xmlbuffer)(topology, text.as_ptr(), length) };
                check("hwloc_topology_set_xmlbuffer", code)?;
            }
        }
        // SAFETY: the topology is configured and not yet loaded.
        check("hwloc_topology_load", unsafe { (self.hwloc.topology_load)(topology) })
    }

    /// The objects of one kind in logical order. The topology must be loaded.
    fn objects(&self, kind: Kind) -> impl Iterator<Item = Result<Object>> {
        // SAFETY: the topology is loaded. The depth of a kind that it lacks is negative, and counts 0 objects;
        // NUMA nodes have a negative depth as well, of their own.
        let depth = unsafe { (self.hwloc.get_type_depth)(self.raw.as_ptr(), kind.code()) };
        // SAFETY: as above.
        let count = unsafe { (self.hwloc.get_nbobjs_by_depth)(self.raw.as_ptr(), depth) };
        (0..count).map(move |index| {
            // SAFETY: the topology is loaded; hwloc gives an object of its own, or null.
            let raw = unsafe { (self.hwloc.get_obj_by_depth)(self.raw.as_ptr(), depth, index) };
            // SAFETY: the object lives as long as the topology, which nobody changes, and begins with
            // these fields in every hwloc 2, as `objects` has checked.
            let raw = unsafe { raw.as_ref() };
            raw.map(|raw| raw.to_owned(kind, self.hwloc)).ok_or(Error::System {
                api: "hwloc_get_obj_by_depth",
                reason: format!("no object {index} of {kind:?}"),
            })
        })
    }
}

impl Drop for RawTopology<'_> {
    fn drop(&mut self) {
        // SAFETY: this is the only owner, and no object of it is referred to any more.
        unsafe { (self.hwloc.topology_destroy)(self.raw.as_ptr()) }
    }
}

/// The first fields of `struct hwloc_obj`, which are the same throughout version 2.
#[repr(C)]
struct RawObject {
    _kind: c_int,
    _subtype: *mut c_char,
    os_index: c_uint,
    _name: *mut c_char,
    _total_memory: u64,
    attributes: *const u64,
    _depth: c_int,
    _logical_index: c_uint,
    _cousins: [*mut c_void; 2],
    _parent: *mut c_void,
    _sibling_rank: c_uint,
    _siblings: [*mut c_void; 2],
    _arity: c_uint,
    _children: *mut c_void,
    _first_and_last_child: [*mut c_void; 2],
    _symmetric_subtree: c_int,
    _memory_arity: c_uint,
    _memory_first_child: *mut c_void,
    _io_arity: c_uint,
    _io_first_child: *mut c_void,
    _misc_arity: c_uint,
    _misc_first_child: *mut c_void,
    cpuset: *const c_void,
}

impl RawObject {
    fn to_owned(&self, kind: Kind, hwloc: &Functions) -> Object {
        let sized = matches!(kind, Kind::Cache(_) | Kind::InstructionCache(_) | Kind::Numa);
        // SAFETY: the attributes are null or valid as long as the object; those of caches and NUMA nodes
        // begin with their size in 64 bits.
        let bytes = if sized { unsafe { self.attributes.as_ref() } } else { None };
        Object {
            kind,
            number: usize::try_from(self.os_index).unwrap_or(usize::MAX),
            processors: if self.cpuset.is_null() { Vec::new() } else { members(self.cpuset, hwloc) },
            bytes: bytes.copied().unwrap_or_default(),
        }
    }
}

/// The numbers in a set of hwloc's, ascending.
fn members(set: *const c_void, hwloc: &Functions) -> Vec<usize> {
    let next = |previous: c_int| {
        // SAFETY: the set belongs to a loaded topology that outlives this call. -1 asks for the first
        // number, and answers that there is no other.
        unsafe { (hwloc.bitmap_next)(set, previous) }
    };
    let numbers = std::iter::successors(Some(next(-1)), |&number| Some(next(number)));
    numbers.map_while(|number| usize::try_from(number).ok()).collect()
}

fn c_string(api: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| Error::System { api, reason: error.to_string() })
}

/// hwloc answers -1 and sets errno where something is wrong.
fn check(api: &'static str, code: c_int) -> Result<()> {
    if code < 0 { Err(Error::io(api, &io::Error::last_os_error())) } else { Ok(()) }
}

const KEEP_ALL: c_int = 0;
const KEEP_NONE: c_int = 1;
const KEEP_STRUCTURE: c_int = 2;
const GROUP: c_int = 12;
const INCLUDE_DISALLOWED: c_ulong = 1;
const BLACKLIST: c_ulong = 1;

/// Declares the functions of hwloc that are used, each once, and finds them in the library.
macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of hwloc, without their prefix.
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn of(library: NonNull<c_void>) -> Result<Self> {
                Ok(Self {$(
                    $name: {
                        let address = address(library, concat!("hwloc_", stringify!($name), "\0"))?;
                        // SAFETY: this is the function of that name in libhwloc.so.15, and its type is that of
                        // hwloc's header, which has not changed within version 2.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address) }
                    },
                )*})
            }
        }
    };
}

functions! {
    get_api_version() -> c_uint;
    topology_init(*mut *mut c_void) -> c_int;
    topology_destroy(*mut c_void);
    topology_set_all_types_filter(*mut c_void, c_int) -> c_int;
    topology_set_type_filter(*mut c_void, c_int, c_int) -> c_int;
    topology_set_flags(*mut c_void, c_ulong) -> c_int;
    topology_set_components(*mut c_void, c_ulong, *const c_char) -> c_int;
    topology_set_synthetic(*mut c_void, *const c_char) -> c_int;
    topology_set_xmlbuffer(*mut c_void, *const c_char, c_int) -> c_int;
    topology_load(*mut c_void) -> c_int;
    get_type_depth(*mut c_void, c_int) -> c_int;
    get_nbobjs_by_depth(*mut c_void, c_int) -> c_uint;
    get_obj_by_depth(*mut c_void, c_int, c_uint) -> *const RawObject;
    bitmap_next(*const c_void, c_int) -> c_int;
}

/// hwloc 2, under the name that its programs ask for.
const LIBRARY: &CStr = c"libhwloc.so.15";

impl Functions {
    /// Opens the library, which then stays open.
    fn load() -> Result<Self> {
        if is_static() {
            let reason = "this program cannot load it: it is linked statically (-static)".to_owned();
            return Err(Error::System { api: "libhwloc.so.15", reason });
        }
        // SAFETY: the name is a C string. The library's initialisers run, which do nothing that could
        // interfere with this process.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        Self::of(NonNull::new(library).ok_or_else(|| missing(&dl_error()))?)
    }
}

/// Where `name`, which ends in a zero, is in the library.
fn address(library: NonNull<c_void>, name: &str) -> Result<*mut c_void> {
    let c_name = CStr::from_bytes_with_nul(name.as_bytes()).map_err(|error| missing(&error.to_string()))?;
    // SAFETY: the library is open and the name is a C string.
    let address = unsafe { libc::dlsym(library.as_ptr(), c_name.as_ptr()) };
    if address.is_null() { Err(missing(&dl_error())) } else { Ok(address) }
}

/// What the loader says of its last failure.
fn dl_error() -> String {
    // SAFETY: takes nothing; the text is this thread's own until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".to_owned();
    }
    // SAFETY: not null, so it is the C string of the last failure, and it is copied at once.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn missing(reason: &str) -> Error {
    Error::System { api: "libhwloc.so.15", reason: format!("{reason} (Debian: apt-get install libhwloc15)") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::affinity;

    const ALL: [Kind; 7] = [
        Kind::Socket,
        Kind::Numa,
        Kind::Cache(3),
        Kind::Cache(1),
        Kind::InstructionCache(1),
        Kind::Core,
        Kind::Processor,
    ];

    #[test]
    fn every_field_of_a_synthetic_machine_is_read() {
        let text =
            "pack:2 numa:2(memory=1073741824) l3:1(size=8388608) l1d:2(size=32768) l1i:1(size=16384) core:1 pu:2";
        let found = objects(Source::Synthetic(text), &ALL).unwrap();
        let of = |kind| found.iter().filter(|object| object.kind == kind).collect::<Vec<_>>();
        let counts = ALL.map(|kind| of(kind).len());
        assert_eq!(counts, [2, 4, 4, 8, 8, 8, 16]);
        let expected =
            |kind, number, processors: &[usize], bytes| Object { kind, number, processors: processors.to_vec(), bytes };
        assert_eq!(of(Kind::Socket)[1].processors, [8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(*of(Kind::Numa)[2], expected(Kind::Numa, 2, &[8, 9, 10, 11], 1 << 30));
        assert_eq!((of(Kind::Cache(3))[3].bytes, of(Kind::Cache(1))[0].bytes), (8 << 20, 32 << 10));
        assert_eq!(of(Kind::InstructionCache(1))[7].bytes, 16 << 10);
        assert_eq!(of(Kind::Core)[5].processors, [10, 11]);
        assert_eq!(*of(Kind::Processor)[9], expected(Kind::Processor, 9, &[9], 0));
    }

    #[test]
    fn numa_nodes_without_a_cache_of_their_own_have_their_processors() {
        let nodes = objects(Source::Synthetic("pack:2 numa:2 l3:2 core:1 pu:1"), &[Kind::Numa, Kind::Core]).unwrap();
        let nodes: Vec<_> = nodes.into_iter().filter(|object| object.kind == Kind::Numa).collect();
        assert_eq!(nodes.iter().map(|node| &node.processors[..]).collect::<Vec<_>>(), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    }

    #[test]
    fn this_machine_has_every_processor_that_this_process_may_use() {
        let found = objects(Source::ThisMachine, &[Kind::Processor]).unwrap();
        for core in affinity::allowed_cores().unwrap() {
            assert!(found.iter().any(|object| object.processors == [core]), "{core}: {found:?}");
        }
    }

    #[test]
    fn refusals_name_the_call() {
        for (source, call) in [
            (Source::Synthetic("core:2 core:2 pu:1"), "hwloc_topology_set_synthetic"),
            (Source::Synthetic("pu:1\0"), "hwloc_topology_set_synthetic"),
            (Source::Xml("<topology"), "hwloc_topology_"),
        ] {
            let error = objects(source, &ALL).unwrap_err().to_string();
            assert!(error.contains(call), "{source:?}: {error}");
        }
    }
}
