#!/bin/bash
# Links the shared library from the static one: link.sh RELEASE VERSION makes RELEASE/libhan.so.VERSION of
# RELEASE/libhan_capi.a, unless it is newer. Cargo could link it as well (crate type cdylib), but not with symbol versions:
# rustc has a version script of its own, and linkers accept one. The machine code is the same.
set -euo pipefail

release=$1 version=$2
here=$(cd "$(dirname "$0")" && pwd)
archive=$release/libhan_capi.a
library=$release/libhan.so.$version
[ "$library" -nt "$archive" ] && [ "$library" -nt "$here/libhan.map" ] && exit

# All of the archive goes in, and what no exported function needs is dropped again. Replaced, not overwritten: a
# program may be running with it. What glibc had in libraries of its own before 2.34 is named, too. CC may be several words.
${CC:-cc} -shared -o "$library.new" \
    "-Wl,-soname,libhan.so.${version%%.*}" "-Wl,--version-script=$here/libhan.map" \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -Wl,--gc-sections \
    -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -lgcc_s -lpthread -ldl -lrt -lutil -lm -lc \
    ${LDFLAGS:-}
mv "$library.new" "$library"
