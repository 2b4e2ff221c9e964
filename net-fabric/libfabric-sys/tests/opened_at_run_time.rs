//! The library comes into the process when it is asked for, and not before.

#![allow(unsafe_code)] // Calls libfabric.

fn mapped() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("libfabric.so"))
}

/// The signals that this process catches.
fn caught() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    status.lines().find(|line| line.starts_with("SigCgt")).expect("Linux tells").to_owned()
}

#[test]
fn opened_by_the_first_call() {
    assert!(!mapped(), "a program that uses this crate is linked with libfabric");
    let before = caught();
    libfabric_sys::library().map(|_| ()).expect("libfabric is installed where this is built");
    assert!(mapped());
    assert_eq!(caught(), before, "a provider has taken signals over");
    let hints = std::ptr::null();
    let mut found = std::ptr::null_mut();
    let library = libfabric_sys::library().expect("it is open");
    let none = std::ptr::null();
    // SAFETY: nothing is asked for in particular, and there is room for the list's address.
    let code = unsafe { library.fi_getinfo((1 << 16) + 17, none, none, 0, hints, &raw mut found) };
    assert_eq!(code, 0);
    assert_eq!(caught(), before, "a provider that looks for its devices has taken signals over");
}

/// A program may be started by naming it to the loader, as tools that bring their own libraries do.
#[test]
fn opened_in_programs_that_the_loader_was_called_with() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there is /proc");
    let mut files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let loader = files.find(|file| file.contains("/ld-")).expect("a loader has brought this program up");
    let own = std::env::current_exe().expect("this program has a file");
    let output = std::process::Command::new(loader).arg(own).args(["--exact", "opened_by_the_first_call"]).output();
    let output = output.expect("the loader can be called");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}
