#!/bin/bash
# Slurm: sbatch examples/batch/slurm.sh PROGRAM ARGUMENTS
#SBATCH --job-name=han
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=16
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: sbatch $0 PROGRAM ARGUMENTS" >&2; exit 2; }

# Ranks that wait this many seconds say who is missing.
export HAN_WATCHDOG=30
# MPI_PLUGIN=pmix where `srun --mpi=list` has it and nodes have libpmix.so.2; pmi2 is available everywhere.
# --kill-on-bad-exit ends the step as soon as a rank fails.
srun --mpi="${MPI_PLUGIN:-pmi2}" --cpu-bind=cores --kill-on-bad-exit "$@"
