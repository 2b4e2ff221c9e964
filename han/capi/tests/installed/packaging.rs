//! How other build systems and readers find the installed library: CMake's files, symbol versions, manual pages.

use crate::prefix::{han_run, passes, pkg_config, prefix, source, succeed};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// CMake at the project of `tests/cmake`, to be built in a folder of this name, with these further definitions.
fn configuring(name: &str, prefix: &Path, definitions: &[&str]) -> (PathBuf, Command) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(source("tests/cmake")).arg("-B").arg(&folder);
    cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())).args(definitions);
    (folder, cmake)
}

/// Configures and builds that project.
fn build(name: &str, prefix: &Path, definitions: &[&str]) -> PathBuf {
    let (folder, mut cmake) = configuring(name, prefix, definitions);
    succeed(&mut cmake);
    succeed(Command::new("cmake").arg("--build").arg(&folder));
    folder
}

#[test]
fn cmake_finds_both_libraries_and_the_module() {
    let folder = build("cmake", prefix(), &[]);
    passes(&folder.join("shared"));
    passes(&folder.join("fixed"));
    passes(&folder.join("fortran"));
    let needed = |program| succeed(Command::new("readelf").arg("-d").arg(folder.join(program)));
    assert!(needed("shared").contains("libhan.so.0"));
    assert!(!needed("fixed").contains("libhan"));
}

/// Another version is asked for than the installed one: CMake must say so, instead of taking it.
#[test]
fn cmake_refuses_other_versions() {
    let takes = |version: &str| {
        let (_, mut cmake) = configuring("cmake-versions", prefix(), &[&format!("-DVERSION={version}")]);
        cmake.output().expect("cmake starts").status.success()
    };
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    assert!(takes(&format!("{major}.{minor}")));
    assert!(!takes("99.0"));
    assert!(!takes(&format!("{major}.{}", minor.parse::<u32>().unwrap() + 1)));
}

/// The imported targets are the components; a project that asks for another must not be told that it is there.
#[test]
fn cmake_refuses_components_that_are_not_there() {
    let asked_for = |components: &str| {
        let (_, mut cmake) = configuring("cmake-components", prefix(), &[&format!("-DCOMPONENTS={components}")]);
        cmake.output().expect("cmake starts")
    };
    assert!(asked_for("han;static").status.success());
    let refused = asked_for("static;mpi");
    let said = String::from_utf8_lossy(&refused.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!refused.status.success());
    assert!(said.contains("there is no component mpi: components are han and static"), "{said}");
}

#[test]
fn every_symbol_has_the_version_of_the_soname() {
    let library = prefix().join("lib/libhan.so");
    let table = succeed(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library));
    let symbols: Vec<&str> = table.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert!(symbols.contains(&"han_init@@HAN_0"), "{table}");
    assert!(symbols.iter().all(|symbol| *symbol == "HAN_0" || symbol.ends_with("@@HAN_0")), "{table}");
}

fn pages(section: &str) -> BTreeSet<String> {
    let files = fs::read_dir(prefix().join("share/man").join(section)).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_function_and_every_subcommand_has_a_page() {
    let functions = crate::exports::declared_in_c();
    let expected: BTreeSet<String> =
        functions.iter().map(String::as_str).chain(["libhan"]).map(|name| format!("{name}.3")).collect();
    assert_eq!(pages("man3"), expected);

    let help = succeed(Command::new(prefix().join("bin/han")).arg("--help"));
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands = commands.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let expected: BTreeSet<String> = commands.map(|name| format!("han-{name}.1")).chain(["han.1".to_owned()]).collect();
    assert_eq!(pages("man1"), expected);
}

#[test]
fn manual_pages_are_sound() {
    let path = |section: &str, name: &String| prefix().join("share/man").join(section).join(name);
    let calls: Vec<PathBuf> = pages("man3").iter().map(|name| path("man3", name)).collect();
    succeed(Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(&calls));
    // clap_mangen puts breaks around blank lines, which are warned about and do no harm.
    let tools: Vec<PathBuf> = pages("man1").iter().map(|name| path("man1", name)).collect();
    succeed(Command::new("mandoc").args(["-T", "lint", "-W", "error"]).args(&tools));

    let preloaded = path("man7", &"libhan_mpi.7".to_owned());
    succeed(Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(&preloaded));
    let text = plain(&succeed(Command::new("mandoc").args(["-T", "ascii"]).arg(preloaded)));
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../mpi/README.md")).unwrap();
    let variables: Vec<&str> =
        readme.lines().filter_map(|line| line.strip_prefix("| `HAN_")?.split('`').next()).collect();
    assert!(variables.len() >= 5, "{variables:?}");
    for variable in variables {
        assert!(text.lines().any(|line| line.trim() == format!("HAN_{variable}")), "{variable}: {text}");
    }

    let text = succeed(Command::new("mandoc").args(["-T", "ascii"]).arg(path("man3", &"han_op_create.3".to_owned())));
    for part in ["NAME", "SYNOPSIS", "DESCRIPTION", "RETURN VALUE", "SEE ALSO"] {
        assert!(text.lines().any(|line| plain(line) == part), "{part}: {text}");
    }
    assert!(plain(&text).contains("typedef void (*han_op_function)(const void *in"), "{text}");
}

/// Without the backspaces by which letters are printed bold.
fn plain(text: &str) -> String {
    let mut letters = String::new();
    for letter in text.chars() {
        if letter == '\u{8}' {
            letters.pop();
        } else {
            letters.push(letter);
        }
    }
    letters
}

/// The first block of a language on a page.
fn block(page: &str, language: &str) -> String {
    let text = fs::read_to_string(source("../..").join(page)).unwrap();
    let start = format!("```{language}\n");
    text.split(&start).nth(1).and_then(|rest| rest.split("```").next()).expect(language).to_owned()
}

#[test]
fn what_the_pages_show_can_be_copied() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let page = "han/docs/user/linking.md";
    for (file, text) in [
        ("hello.c", block("README.md", "c")),
        ("CMakeLists.txt", block(page, "cmake")),
        ("hello.f90", block(page, "fortran")),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
    let mut cmake = Command::new("cmake");
    cmake.current_dir(&folder).args(["-S", ".", "-B", "build"]);
    succeed(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    succeed(Command::new("cmake").current_dir(&folder).args(["--build", "build"]));
    let fortran = folder.join("hello-f");
    let mut gfortran = Command::new("gfortran");
    gfortran.current_dir(&folder).arg("hello.f90").arg("-o").arg(&fortran);
    succeed(gfortran.args(pkg_config(&["--cflags", "--libs"])));

    let greetings = succeed(&mut han_run(3, &folder.join("build/hello"), &[]));
    assert_eq!(greetings.matches("of 3").count(), 3, "{greetings}");
    assert!(greetings.contains("the ranks add up to 3"), "{greetings}");
    let sums = succeed(&mut han_run(2, &fortran, &[]));
    assert_eq!(sums.matches("the sum is   3.0").count(), 2, "{sums}");
}
