//! What `make install` puts where.

use crate::prefix::{make, pkg_config, prefix, source, succeed};
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn files_links_and_soname() {
    let version = env!("CARGO_PKG_VERSION");
    let lib = prefix().join("lib");
    assert_eq!(fs::read_link(lib.join("libhan.so")).unwrap(), Path::new("libhan.so.0"));
    assert_eq!(fs::read_link(lib.join("libhan.so.0")).unwrap(), Path::new(&format!("libhan.so.{version}")));
    for file in ["lib/libhan.a", "lib/libhan_mpi.so", "include/han.h", "include/han.mod", "include/han.f90", "bin/han"]
    {
        assert!(prefix().join(file).is_file(), "{file}");
    }
    let dynamic = succeed(Command::new("readelf").arg("-d").arg(lib.join("libhan.so")));
    assert!(dynamic.contains("soname: [libhan.so.0]"), "{dynamic}");
    assert_eq!(pkg_config(&["--modversion"]), [version]);
}

#[test]
fn destdir_is_honoured_and_not_recorded_and_nothing_is_left() {
    let stage = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stage");
    let _ = fs::remove_dir_all(&stage);
    let destdir = format!("DESTDIR={}", stage.display());
    prefix(); // has built what is installed here once more
    make("install", Path::new("/opt/han"), &["--old-file=build-installed", &destdir]);
    for file in ["pkgconfig/han.pc", "cmake/han/hanConfig.cmake", "cmake/han/hanConfigVersion.cmake"] {
        let text = fs::read_to_string(stage.join("opt/han/lib").join(file)).unwrap();
        assert!(!text.contains('@'), "{text}");
        assert!(!file.ends_with(".pc") || text.starts_with("prefix=/opt/han\n"), "{text}");
    }
    assert!(stage.join("opt/han/lib/libhan.so").exists());

    make("uninstall", Path::new("/opt/han"), &[&destdir]);
    let left = succeed(Command::new("find").arg(&stage).args(["!", "-type", "d"]));
    assert_eq!(left, "", "what uninstall leaves");
    fs::remove_dir_all(stage).unwrap();
}

/// The compiler that links may be several words, and brings in no library that a system of today does not need.
#[test]
fn the_shared_library_is_linked_by_any_compiler() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("linked");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(prefix().join("lib/libhan.a"), folder.join("libhan_capi.a")).unwrap();
    let mut link = Command::new(source("link.sh"));
    succeed(link.arg(&folder).arg("0.0.0").env("CC", "env cc"));
    let needed = |library: &Path| {
        let dynamic = succeed(Command::new("readelf").arg("-d").arg(library));
        let names = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
        names.filter_map(|line| line.split(['[', ']']).nth(1).map(str::to_owned)).collect::<Vec<_>>()
    };
    let libraries = needed(&folder.join("libhan.so.0.0.0"));
    assert_eq!(libraries, needed(&prefix().join("lib/libhan.so")));
    assert!(libraries.iter().any(|name| name.starts_with("libc.")), "{libraries:?}");
    fs::remove_dir_all(folder).unwrap();
}

/// In many environments FC is a compiler that has other options.
#[test]
fn the_module_is_made_by_gfortran_or_what_make_is_told() {
    let commands = |arguments: &[&str]| {
        let mut make = Command::new("make");
        make.arg("-C").arg(source("../..")).args(["--dry-run", "--old-file=build-installed", "install"]);
        succeed(make.args(arguments).env("FC", "ifx"))
    };
    assert!(commands(&[]).contains("\ngfortran -std=f2018 "));
    assert!(commands(&["FC=gfortran-99"]).contains("\ngfortran-99 -std=f2018 "));
}
