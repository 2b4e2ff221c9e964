//! Finds hwloc, which tells the engine where the cores are, or says what to install.

use std::process::exit;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // 3.0 changes the structures that `src/sys/hwloc.rs` declares.
    if let Err(error) = pkg_config::Config::new().range_version("2.1".."3").probe("hwloc") {
        eprintln!(
            "han needs the library hwloc 2 (2.1 or newer) with its headers, and pkg-config to find it.\n\
             Install them with `make deps`, or by hand: apt-get install libhwloc-dev pkg-config\n\n{error}"
        );
        exit(1);
    }
}
