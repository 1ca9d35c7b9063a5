#!/bin/sh
# Run the compiled program with the MATLAB Runtime of the worker, which is looked for below /opt.
runtime=$(ls -d /opt/matlabruntime/* /opt/MATLAB/* 2>/dev/null | tail -n 1)
if [ -z "$runtime" ]; then
    echo "There is no MATLAB Runtime below /opt on this worker." >&2
    exit 1
fi
if [ ! -x ./mean_of_days ]; then
    echo "The program is not compiled: mcc -m mean_of_days.m" >&2
    exit 1
fi
export MCR_CACHE_ROOT="$TMPDIR"
export LD_LIBRARY_PATH="$runtime/runtime/glnxa64:$runtime/bin/glnxa64:$runtime/sys/os/glnxa64"
exec ./mean_of_days "$@"
