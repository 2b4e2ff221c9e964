//! Makes the bindings from the installed header. Nothing is linked with libpmix: its functions are looked up when it is
//! opened (see `src/library.rs`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

use bindgen::callbacks::{IntKind, ParseCallbacks};

/// What the library exports, looked up at run time; all of it since PMIx 2.
const FUNCTIONS: &[&str] = &[
    "PMIx_Init",
    "PMIx_Finalize",
    "PMIx_Abort",
    "PMIx_Put",
    "PMIx_Commit",
    "PMIx_Fence_nb",
    "PMIx_Get",
    "PMIx_Error_string",
];

/// What these need comes along.
const TYPES: &[&str] = &["pmix_proc_t", "pmix_value_t", "pmix_info_t"];

const CONSTANTS: &[&str] = &[
    "PMIX_SUCCESS",
    "PMIX_OPERATION_SUCCEEDED",
    "PMIX_ERR_NOT_FOUND",
    "PMIX_BOOL",
    "PMIX_BYTE_OBJECT",
    "PMIX_STRING",
    "PMIX_UINT32",
    "PMIX_GLOBAL",
    "PMIX_JOB_SIZE",
    "PMIX_HOSTNAME",
    "PMIX_COLLECT_DATA",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let library = pkg_config::Config::new().atleast_version("3").cargo_metadata(false).probe("pmix");
    let headers = library
        .unwrap_or_else(|error| missing("pmix.h (PMIx 3 or newer), and pkg-config to find it", &error.to_string()));
    let bindings = bindgen::Builder::default()
        .header_contents("wrapper.h", "#include <pmix.h>\n")
        .clang_args(clang_arguments(&headers.include_paths))
        .allowlist_function(FUNCTIONS.join("|"))
        .allowlist_type(TYPES.join("|"))
        .allowlist_var(CONSTANTS.join("|"))
        .dynamic_library_name("Exports")
        .dynamic_link_require_all(true)
        .parse_callbacks(Box::new(Constants))
        .wrap_unsafe_ops(true)
        .prepend_enum_name(false)
        .generate_comments(false)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .generate()
        .unwrap_or_else(|error| missing("libclang", &error.to_string()));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(out.join("bindings.rs")).expect("the build's output directory can be written");
}

/// Constants have the types of what they are compared with.
#[derive(Debug)]
struct Constants;

impl ParseCallbacks for Constants {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        match name {
            "PMIX_BOOL" | "PMIX_BYTE_OBJECT" | "PMIX_STRING" | "PMIX_UINT32" => Some(IntKind::U16),
            "PMIX_GLOBAL" => Some(IntKind::U8),
            "PMIX_SUCCESS" | "PMIX_ERR_NOT_FOUND" => Some(IntKind::Int),
            _ => None,
        }
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
        "pmix-client needs {what}.\n\
         Install it with `make deps`, or by hand: apt-get install libpmix-dev libclang1 pkg-config\n\n{error}"
    );
    exit(1);
}
