//! Hashes the sources of the library: ranks that run other ones would choose differently, and find out by `HAN_BUILD`.
//! Of a package from a registry the crates that it needs are elsewhere; their versions tell.

use std::fs;
use std::path::{Path, PathBuf};

const SOURCES: [&str; 4] = ["src", "../net-fabric/src", "../shm-core/src", "../shm-core/reduce-kernels/src"];

fn main() {
    let mut files = Vec::new();
    for folder in SOURCES.into_iter().filter(|folder| Path::new(folder).is_dir()) {
        println!("cargo:rerun-if-changed={folder}");
        collect(Path::new(folder), &mut files);
    }
    files.sort();
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        let text = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for byte in file.as_os_str().as_encoded_bytes().iter().chain(&text) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo:rustc-env=HAN_BUILD={hash:016x}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.map(|entry| entry.expect("a folder's entry").path()) {
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
