"""Carries out the recipe's steps without Spack: `by_hand.py ARCHIVE FOLDER`.

It stands in for the few names of `spack.package` that the recipe uses: directives are recorded, `make` is run. The
dependencies are those of the system. What it shows is that the steps build and install from the archive; Spack's own
choice of dependencies it cannot show.
"""

import importlib.util
import os
import subprocess
import sys
import tarfile
import types
from pathlib import Path


class Environment:
    def set(self, name, value):
        os.environ[name] = str(value)

    def prepend_path(self, name, value):
        os.environ[name] = os.pathsep.join(filter(None, [str(value), os.environ.get(name)]))


class System:
    """A specification whose dependencies lie where the system has them."""

    def __init__(self, prefix):
        self.prefix = prefix

    def __getitem__(self, name):
        if name == "llvm":
            lib = max(Path("/usr/lib").glob("llvm-*/lib"), default=Path("/usr/lib"))
        else:
            lib = Path("/usr/lib")
        return types.SimpleNamespace(prefix=types.SimpleNamespace(lib=lib))


def make(*arguments):
    print("make", *arguments, flush=True)
    subprocess.run(["make", *arguments], check=True)


def recipe():
    recorded = []

    def directive(*arguments, **keywords):
        recorded.append((arguments, keywords))

    package = types.ModuleType("spack.package")
    package.MakefilePackage = type("MakefilePackage", (), {})
    package.make = make
    for name in ("license", "version", "depends_on"):
        setattr(package, name, directive)
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": package})
    path = Path(__file__).parent / "packages/han/package.py"
    spec = importlib.util.spec_from_file_location("recipe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Han, recorded


def main(archive, folder):
    han, recorded = recipe()
    version = next(arguments[0] for arguments, keywords in recorded if arguments[0][0].isdigit())
    if Path(archive).name != f"han-{version}.tar.xz":
        sys.exit(f"the recipe is for version {version}, the archive is {archive}")
    prefix = Path(folder).resolve() / "prefix"
    with tarfile.open(archive) as sources:
        sources.extractall(folder)
    os.chdir(Path(folder) / f"han-{version}")

    package = han()
    package.spec = System(prefix)
    package.setup_build_environment(Environment())
    make(*package.build_targets)
    package.install(package.spec, prefix)
    package.setup_run_environment(Environment())
    subprocess.run([prefix / "bin/han", "run", "-n", "2", "--", prefix / "bin/han", "--version"], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
