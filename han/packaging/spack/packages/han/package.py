# Recipe for Spack. The archive is that of `make dist`, which has all crates within, so the build needs no network:
#
#     make dist && cp target/dist/han-0.1.0.tar.xz .
#     spack repo add han/packaging/spack
#     spack install --no-checksum han
#
# It looks for the archive in the folder in which spack is called.

import os

from spack.package import *


class Han(MakefilePackage):
    """Collective communication for native HPC codes on CPUs: shared memory within a node, libfabric between nodes."""

    url = "file://{0}/han-0.1.0.tar.xz".format(os.getcwd())

    license("MIT OR Apache-2.0")

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    # Only the headers are needed, and libclang to read them; programs open these libraries at run time.
    depends_on("llvm+clang", type="build")
    depends_on("libfabric@1.17:", type=("build", "link", "run"))
    depends_on("hwloc@2.1:2", type="run")
    depends_on("pmix@3:", type=("build", "link", "run"))

    def setup_build_environment(self, env):
        env.set("CARGO_NET_OFFLINE", "true")
        env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)

    # `deps` would ask apt for what only the tests need.
    build_targets = ["--old-file=deps", "build-installed"]

    def install(self, spec, prefix):
        make("--old-file=deps", "--old-file=build-installed", "install", "PREFIX={0}".format(prefix))

    def setup_run_environment(self, env):
        # Where they are found when they are opened.
        for library in ("libfabric", "hwloc", "pmix"):
            env.prepend_path("LD_LIBRARY_PATH", self.spec[library].prefix.lib)
