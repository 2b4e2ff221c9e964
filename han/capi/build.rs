//! Gives the shared library the name under which programs ask for it at run time.

fn main() {
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhan.so.{major}");
}
