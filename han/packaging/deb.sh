#!/bin/bash
# deb.sh VERSION ARCHIVE FOLDER: Debian packages of what `make dist` has made, in FOLDER.
set -euo pipefail

version=$1 archive=$(realpath "$2") folder=$(realpath -m "$3")
here=$(cd "$(dirname "$0")" && pwd)
head -1 "$here/debian/changelog" | grep -qF "han ($version-" || {
    echo "make deb: the first entry of han/packaging/debian/changelog is not of version $version" >&2; exit 1; }

rm -rf "$folder"
mkdir -p "$folder"
ln -s "$archive" "$folder/han_$version.orig.tar.xz"
tar -xJf "$archive" -C "$folder"
cp -r "$here/debian" "$folder/han-$version/debian"

# Rustup's stand-ins for cargo and rustc ask in the home folder which toolchain is meant; debhelper gives an empty one.
PATH="$(rustc --print sysroot)/bin:$PATH"
cd "$folder/han-$version"
env -u CARGO_TARGET_DIR -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u DESTDIR -u PREFIX -u LIBDIR \
    dpkg-buildpackage --unsigned-source --unsigned-changes --build=binary
cd ..
rm -rf "han-$version"
ls -1 "$folder"/*.deb
