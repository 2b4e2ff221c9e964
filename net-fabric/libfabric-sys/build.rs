//! Makes the bindings from the installed headers. libfabric's fast calls are inline functions that jump through
//! tables; these get wrappers, compiled here. Nothing is linked with libfabric itself: what it exports is looked up
//! when it is opened (see `src/lib.rs`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

use bindgen::callbacks::{IntKind, ParseCallbacks};

/// What the library exports, looked up at run time.
const EXPORTED: &[&str] =
    &["fi_getinfo", "fi_freeinfo", "fi_dupinfo", "fi_fabric", "fi_version", "fi_strerror", "fi_tostr_r"];

/// Inline functions, which go through the tables of an object that the library made. None of them calls an exported
/// function (`fi_allocinfo` does: `fi_dupinfo` of null is the same).
const INLINE: &[&str] = &[
    "fi_av_insert",
    "fi_av_open",
    "fi_av_straddr",
    "fi_cancel",
    "fi_close",
    "fi_control",
    "fi_cq_open",
    "fi_cq_read",
    "fi_cq_readerr",
    "fi_cq_sread",
    "fi_cq_strerror",
    "fi_domain",
    "fi_enable",
    "fi_endpoint",
    "fi_ep_bind",
    "fi_getname",
    "fi_mr_bind",
    "fi_mr_desc",
    "fi_mr_enable",
    "fi_mr_reg",
    "fi_tinjectdata",
    "fi_trecv",
    "fi_trecvmsg",
    "fi_trecvv",
    "fi_trywait",
    "fi_tsenddata",
    "fi_tsendmsg",
    "han_fi_set_progress",
];

/// Types and constants of the interface; what these need comes along.
const TYPES: &str = "fi_.*|fid|fid_.*";
const CONSTANTS: &str = "FI_.*|EPIPE";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=wrapper.h");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let library = pkg_config::Config::new().atleast_version("1.17").cargo_metadata(false).probe("libfabric");
    let headers = library.unwrap_or_else(|error| {
        missing("libfabric (1.17 or newer) with its headers, and pkg-config to find it", &error.to_string())
    });
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arguments = clang_arguments(&headers.include_paths);
    inline_functions(&out, &arguments, &headers.include_paths);
    exported_functions(&out, &arguments);
}

/// The types, the constants, and the inline functions with their wrappers.
fn inline_functions(out: &Path, arguments: &[String], includes: &[PathBuf]) {
    let wrappers = out.join("wrappers.c");
    builder(arguments)
        .allowlist_type(TYPES)
        .allowlist_var(CONSTANTS)
        .allowlist_function(INLINE.join("|"))
        .wrap_static_fns(true)
        .wrap_static_fns_path(&wrappers)
        .generate()
        .unwrap_or_else(|error| missing("libclang", &error.to_string()))
        .write_to_file(out.join("bindings.rs"))
        .expect("the build's output directory can be written");
    cc::Build::new()
        .file(&wrappers)
        .include(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"))
        .includes(includes)
        .opt_level(2)
        .warnings(false)
        .compile("han_libfabric_wrappers");
}

/// The exported functions, as a structure of addresses.
fn exported_functions(out: &Path, arguments: &[String]) {
    builder(arguments)
        .allowlist_function(EXPORTED.join("|"))
        .allowlist_recursively(false)
        .dynamic_library_name("Exports")
        .dynamic_link_require_all(true)
        .generate()
        .unwrap_or_else(|error| missing("libclang", &error.to_string()))
        .write_to_file(out.join("exports.rs"))
        .expect("the build's output directory can be written");
}

fn builder(arguments: &[String]) -> bindgen::Builder {
    bindgen::Builder::default()
        .header("wrapper.h")
        .clang_args(arguments)
        .layout_tests(true)
        .derive_default(true)
        .wrap_unsafe_ops(true)
        .prepend_enum_name(false)
        .parse_callbacks(Box::new(Flags))
        .generate_comments(false)
        .rust_edition(bindgen::RustEdition::Edition2024)
}

/// Flags have 64 bits in the interface, however low they are. Codes of errors and modes of registration are `int`.
#[derive(Debug)]
struct Flags;

impl ParseCallbacks for Flags {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        let narrow = ["EPIPE", "FI_E", "FI_MR_"].iter().any(|start| name.starts_with(start));
        (!narrow).then_some(IntKind::U64)
    }
}

/// libclang comes without the compiler's own headers where clang is not installed; the C compiler's serve as well.
fn clang_arguments(includes: &[PathBuf]) -> Vec<String> {
    let compiler = cc::Build::new().opt_level(0).get_compiler();
    let own = Command::new(compiler.path()).arg("-print-file-name=include").output().ok();
    let own = own.and_then(|output| String::from_utf8(output.stdout).ok()).map(|path| path.trim().to_owned());
    let own = own.filter(|path| Path::new(path).is_absolute()).map(|path| format!("-idirafter{path}"));
    includes.iter().map(|path| format!("-I{}", path.display())).chain(own).collect()
}

fn missing(what: &str, error: &str) -> ! {
    eprintln!(
        "libfabric-sys needs {what}.\n\
         Install it with `make deps`, or by hand: apt-get install libfabric-dev libclang1 pkg-config\n\n{error}"
    );
    exit(1);
}
