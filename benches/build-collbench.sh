#!/bin/bash
# build-collbench.sh RELEASE RIVALS: compiles collbench.c once for han and once for every rival.
#
# RELEASE is the directory with libhan_capi.so (`make build`), RIVALS that of install-rivals.sh, which
# may be missing. The programs stand in RELEASE/collbench, named after what they measure; Debian's own
# Open MPI and MPICH take part if their development packages are installed.
set -euo pipefail

release=$(cd "${1:?usage: build-collbench.sh RELEASE RIVALS}" && pwd)
rivals=${2:?usage: build-collbench.sh RELEASE RIVALS}
here=$(cd "$(dirname "$0")" && pwd)
source_file=$here/collbench.c
flags=(-std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra)
mkdir -p "$release/collbench"

# build NAME NEWER-THAN COMPILER-AND-FLAGS... -- LIBRARIES...
build() {
    local program="$release/collbench/$1" newer=$2 compiler=() libraries=()
    shift 2
    while [ "$1" != -- ]; do compiler+=("$1"); shift; done
    shift
    libraries=("$@")
    [ "$program" -nt "$source_file" ] && [ "$program" -nt "$newer" ] && return
    # Replaced, not overwritten: it may be running.
    "${compiler[@]}" "${flags[@]}" -o "$program.new" "$source_file" "${libraries[@]}"
    mv "$program.new" "$program"
}

# The shared library, as users have it, under the name by which programs look for it.
library=$release/libhan_capi.so
name=$(objdump -p "$library" | sed -n 's/^ *SONAME *//p')
ln -sf ../libhan_capi.so "$release/collbench/$name"
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
    compiler=$(command -v "mpicc.$debian") || continue
    build "debian-$debian" "$compiler" "$compiler" --
done
