#!/bin/sh
# Run the program with the Julia of the worker, which is looked for on PATH and below /opt.
julia=$(command -v julia || ls -d /opt/julia*/bin/julia 2>/dev/null | tail -n 1)
if [ -z "$julia" ]; then
    echo "There is no Julia on PATH or below /opt on this worker." >&2
    exit 1
fi
# Julia writes into its first depot; packages of the worker, if there are any, are in the second.
export JULIA_DEPOT_PATH="$TMPDIR/depot:/opt/julia-depot"
exec "$julia" --startup-file=no mean_of_days.jl "$@"
