#!/bin/bash
# Open MPI's launcher, within an allocation of any batch system that it knows, or with hosts by hand:
#   examples/batch/mpirun.sh -n 32 --host node1:16,node2:16 PROGRAM ARGUMENTS
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: $0 [OPTIONS OF MPIRUN] PROGRAM ARGUMENTS" >&2; exit 2; }

# The program needs libpmix.so.2 on each node: Debian's libpmix2, or the launcher's own, by LD_LIBRARY_PATH. Ranks on
# other nodes get the variables that -x names.
export HAN_WATCHDOG=30
exec "${MPIRUN:-mpirun}" --bind-to core -x HAN_WATCHDOG "$@"
