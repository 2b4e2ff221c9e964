#!/bin/bash
# check-deb.sh FOLDER: installs the Debian packages of FOLDER on a copy of this system that exists in memory only, builds
# and runs a program with them there, and removes them again. As root.
set -euo pipefail

folder=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../../examples/c/hello.c")
[ "$(id -u)" -eq 0 ] || { echo "make check-deb: only root can lay a copy over the system" >&2; exit 1; }

if [ "${2:-}" != inside ]; then
    exec unshare --mount --pid --fork --kill-child "$0" "$folder" inside
fi

root=/mnt
mount -t tmpfs -o size=2g tmpfs "$root"
mkdir "$root"/{upper,work,system}
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/system"
root=$root/system
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mkdir "$root/packages"
cp "$folder"/*.deb "$source" "$root/packages"
rm "$root"/packages/*-dbgsym_*.deb

chroot "$root" /bin/bash -euxo pipefail <<'CHROOT'
cd /packages
dpkg --install *.deb
cc hello.c -o hello $(pkg-config --cflags --libs han)
test -z "$(readelf -d hello | grep -E 'RPATH|RUNPATH')"
han run -n 3 -- ./hello
test "$(han run -n 3 -- ./hello | grep -c 'of 3')" -eq 3
cc hello.c -o fixed -static $(pkg-config --static --cflags --libs han)
han run -n 2 -- ./fixed
test -f /usr/share/man/man3/han_bcast.3.gz && test -f /usr/share/man/man1/han-run.1.gz
printf 'cmake_minimum_required(VERSION 3.16)\nproject(x C)\nfind_package(han 0.1 REQUIRED)\nadd_executable(x hello.c)\ntarget_link_libraries(x PRIVATE han::han)\n' > CMakeLists.txt
cmake -S . -B build > /dev/null && cmake --build build > /dev/null && han run -n 2 -- build/x
dpkg --purge han libhan-dev libhan0
test ! -e /usr/include/han.h && test -z "$(ls -d /usr/lib/*/libhan* 2> /dev/null)"
CHROOT
echo "check-deb: installed, built with, ran, removed"
