//! The MPIs that are installed, and the programs compiled with each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use benches::Result;
use benches::contestants::Library;

use crate::World;

/// What a program is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    C,
    /// Fortran with `mpif.h`.
    Fixed,
    /// Fortran with `use mpi`.
    Module,
    /// Fortran with `use mpi_f08`.
    Module08,
}

/// A program to compile.
pub(crate) struct Program {
    /// Its name without ending.
    pub(crate) name: String,
    source: PathBuf,
    language: Language,
}

/// An MPI, or one of the interfaces of an MPI that has two.
pub(crate) struct Mpi {
    pub(crate) name: &'static str,
    pub(crate) library: Library,
    /// What its programs need in their environment.
    pub(crate) variables: &'static [&'static str],
    c: Vec<String>,
    /// Compiler and flags, if it has Fortran at all.
    fortran: Option<Vec<String>>,
    /// What stands behind the source.
    c_libraries: Vec<String>,
    fortran_libraries: Vec<String>,
}

/// Reduce in place crashes in the algorithms that MPICH 4.0 prefers.
const DEBIAN_MPICH: &[&str] = &["MPIR_CVAR_DEVICE_COLLECTIVES=none"];

/// The programs of `sources` whose names are `wanted`; all if that is empty.
pub(crate) fn programs(sources: &Path, wanted: &[String]) -> Result<Vec<Program>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(sources).map_err(|error| format!("{}: {error}", sources.display()))? {
        let source = entry?.path();
        let Some(name) = source.file_stem().map(|stem| stem.to_string_lossy().into_owned()) else { continue };
        let language = match source.extension().and_then(|ending| ending.to_str()) {
            Some("c") => Language::C,
            Some("f") => Language::Fixed,
            Some("f90") if name.ends_with("08") => Language::Module08,
            Some("f90") => Language::Module,
            _ => continue,
        };
        all.push(Program { name, source, language });
    }
    all.sort_by(|a, b| (a.language != Language::C, &a.name).cmp(&(b.language != Language::C, &b.name)));
    let names: Vec<String> = all.iter().map(|program| program.name.clone()).collect();
    known("programs", wanted, &names)?;
    all.retain(|program| wanted.is_empty() || wanted.contains(&program.name));
    Ok(all)
}

/// The MPIs whose names are `wanted`; all that are there if that is empty.
pub(crate) fn installed(rivals: &Path, wanted: &[String]) -> Result<Vec<Mpi>> {
    let mut all = from_wheels(rivals);
    all.extend(from_debian());
    let names: Vec<String> = all.iter().map(|mpi| mpi.name.to_owned()).collect();
    known("installed MPIs", wanted, &names)?;
    all.retain(|mpi| wanted.is_empty() || wanted.iter().any(|name| name == mpi.name));
    if all.is_empty() {
        return Err(
            "no MPI is installed: benches/install-rivals.sh installs three, and apt-get libmpich-dev one".into()
        );
    }
    Ok(all)
}

/// What `benches/install-rivals.sh` has installed.
fn from_wheels(rivals: &Path) -> Vec<Mpi> {
    let there = |name: &str| rivals.join(name).join(".complete").exists().then(|| rivals.join(name));
    let wrapper = |home: &Path, tool: &str| vec![home.join("bin").join(tool).display().to_string()];
    let mut all = Vec::new();
    if let Some(home) = there("openmpi") {
        all.push(Mpi::of("openmpi", Library::OpenMpi, wrapper(&home, "mpicc")));
    }
    if let Some(home) = there("mpich") {
        all.push(Mpi::of("mpich", Library::Mpich, wrapper(&home, "mpicc")));
        all.push(Mpi::of("mpich-abi", Library::Mpich, wrapper(&home, "mpicc_abi")));
    }
    if let Some(home) = there("intelmpi") {
        all.extend([intel(&home, false), intel(&home, true)]);
    }
    all
}

/// Intel MPI's own wrappers look for compilers of its own. Its module `mpi` is there for gfortran, `mpi_f08` is not.
fn intel(home: &Path, standard_abi: bool) -> Mpi {
    let (include, lib) = (home.join("include"), home.join("lib"));
    let link = |names: &[&str]| -> Vec<String> {
        let directory = [format!("-L{}", lib.display()), format!("-Wl,-rpath,{}", lib.display())];
        directory.into_iter().chain(names.iter().map(|name| format!("-l{name}"))).collect()
    };
    let c = vec!["cc".to_owned(), format!("-I{}", include.display())];
    if standard_abi {
        // The header of the standard's interface has a name of its own here, and keeps the other one out.
        let c = [c, vec!["-include".to_owned(), "mpi_abi.h".to_owned(), "-DCHECK_NO_MPI_H".to_owned()]].concat();
        return Mpi { c_libraries: link(&["mpi_abi"]), ..Mpi::of("intelmpi-abi", Library::IntelMpi, c) };
    }
    let modules = modules_for_gfortran(&include.join("mpi/gfortran"));
    let fortran = modules.map(|modules| {
        let folders =
            [include.display().to_string(), modules.display().to_string()].map(|folder| format!("-I{folder}"));
        [vec!["gfortran".to_owned()], folders.to_vec()].concat()
    });
    let (c_libraries, fortran_libraries) = (link(&["mpi"]), link(&["mpifort", "mpi"]));
    Mpi { c_libraries, fortran, fortran_libraries, ..Mpi::of("intelmpi", Library::IntelMpi, c) }
}

/// The folder of modules made by the installed gfortran's major version, if there is one.
fn modules_for_gfortran(folder: &Path) -> Option<PathBuf> {
    let output = Command::new("gfortran").arg("-dumpversion").output().ok()?;
    let major = String::from_utf8_lossy(&output.stdout).trim().split('.').next()?.to_owned() + ".";
    let folders = fs::read_dir(folder).ok()?.filter_map(std::result::Result::ok);
    folders
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&major)))
}

fn from_debian() -> Vec<Mpi> {
    let mut all = Vec::new();
    for (name, suffix, library, variables) in [
        ("debian-mpich", "mpich", Library::DebianMpich, DEBIAN_MPICH),
        ("debian-openmpi", "openmpi", Library::DebianOpenMpi, &[]),
    ] {
        let wrapper = |tool: &str| vec![format!("{tool}.{suffix}")];
        // The compiler's wrapper alone comes without its header.
        let header =
            Command::new(format!("mpicc.{suffix}")).args(["-include", "mpi.h", "-E", "-x", "c", "/dev/null"]).output();
        if header.is_ok_and(|output| output.status.success()) {
            let fortran = Some(wrapper("mpifort"));
            all.push(Mpi { variables, fortran, ..Mpi::of(name, library, wrapper("mpicc")) });
        }
    }
    all
}

impl Mpi {
    fn of(name: &'static str, library: Library, c: Vec<String>) -> Self {
        let none = Vec::new;
        Self { name, library, variables: &[], c, fortran: None, c_libraries: none(), fortran_libraries: none() }
    }

    /// Why the program cannot be compiled with it.
    pub(crate) fn lacks(&self, program: &Program) -> Option<&'static str> {
        match (program.language, &self.fortran) {
            (Language::C, _) => None,
            (_, None) => Some("this MPI is installed without Fortran"),
            (Language::Module08, _) if self.library == Library::IntelMpi => Some("mpi_f08.mod is not one of gfortran"),
            _ => None,
        }
    }

    /// Debian's have no launcher for the testbed, and its MPICH spins so long that ranks must not share cores by four.
    pub(crate) fn can_run(&self, world: &World) -> bool {
        match self.library {
            Library::DebianMpich => world.network.is_none() && world.ranks <= 2 * benches::machine::cores(),
            Library::DebianOpenMpi => world.network.is_none(),
            _ => true,
        }
    }

    /// Compiles the program into a folder of `folder`, unless that is newer than the source; gives the binary's path.
    pub(crate) fn compile(&self, program: &Program, folder: &Path) -> Result<PathBuf> {
        let folder = folder.join(self.name);
        fs::create_dir_all(&folder)?;
        let binary = folder.join(&program.name);
        let header = program.source.with_file_name("check.h");
        if is_newer(&binary, &program.source) && is_newer(&binary, &header) {
            return Ok(binary);
        }
        let (words, libraries) = match (program.language, &self.fortran) {
            (Language::C, _) => (&self.c, &self.c_libraries),
            (_, Some(fortran)) => (fortran, &self.fortran_libraries),
            (_, None) => return Err(format!("{} has no Fortran", self.name).into()),
        };
        let [tool, flags @ ..] = words.as_slice() else { return Err("no compiler".into()) };
        let mut command = Command::new(tool);
        command.args(flags).args(["-O1", "-g"]);
        match program.language {
            // Headers of some MPIs describe an array of statuses that may be left out as one that must be there.
            Language::C => {
                command.args(["-std=gnu11", "-Wall", "-Wextra", "-Wno-stringop-overflow", "-Werror", "-pthread"])
            }
            // One interface stands for buffers of every type and rank.
            Language::Fixed | Language::Module => command.args(["-fallow-argument-mismatch", "-w"]),
            Language::Module08 => command.arg("-J").arg(&folder),
        };
        command.arg("-o").arg(&binary).arg(&program.source).args(libraries);
        let output = command.output().map_err(|error| format!("{tool}: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("{} does not compile with {}:\n{said}", program.name, self.name).into());
        }
        Ok(binary)
    }
}

/// Whether both are there and the first was written later.
pub(crate) fn is_newer(file: &Path, than: &Path) -> bool {
    let written = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    matches!((written(file), written(than)), (Some(file), Some(than)) if file > than)
}

/// Refuses names that nobody has.
fn known(what: &str, wanted: &[String], names: &[String]) -> Result<()> {
    match wanted.iter().find(|name| !names.contains(name)) {
        Some(name) => Err(format!("`{name}` is none of the {what}: {}", names.join(", ")).into()),
        None => Ok(()),
    }
}
