#!/bin/bash
# PBS, with the Hydra launcher of MPICH or Intel MPI: qsub -v PROGRAM=/path/to/program examples/batch/pbs.sh
#PBS -N han
#PBS -l select=2:ncpus=16:mpiprocs=16
#PBS -l walltime=00:10:00
set -euo pipefail
: "${PROGRAM:?qsub -v PROGRAM=/path/to/program}"
cd "${PBS_O_WORKDIR:-.}"

export HAN_WATCHDOG=30
# The file has one line per rank; Hydra merges repeated host names.
ranks=$(wc -l < "$PBS_NODEFILE")
# A Hydra built for PBS finds the hosts itself; -f works with any.
mpiexec.hydra -f "$PBS_NODEFILE" -n "$ranks" "$PROGRAM"
