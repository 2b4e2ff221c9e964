//! Looks for hwloc, which tells the engine where the cores are, or says what to install. It is opened at
//! run time (see `src/sys/hwloc.rs`), so nothing is linked.

use std::process::exit;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    // 3.0 changes the structures that are declared there.
    let hwloc = pkg_config::Config::new().range_version("2.1".."3").cargo_metadata(false).probe("hwloc");
    if let Err(error) = hwloc {
        eprintln!(
            "han needs the library hwloc 2 (2.1 or newer) with its headers, and pkg-config to find it.\n\
             Install them with `make deps`, or by hand: apt-get install libhwloc-dev pkg-config\n\n{error}"
        );
        exit(1);
    }
}
