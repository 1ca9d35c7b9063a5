#!/bin/sh
# Make a virtual environment with pip: make-venv.sh PYTHON FOLDER
# By uv where it is on PATH: Python's own way takes 9 s of a processor to unpack and compile pip.
set -eu
if command -v uv >/dev/null; then
    UV_CACHE_DIR="$2/uv-cache" uv venv --quiet --seed --allow-existing --python "$1" "$2" && exit
fi
"$1" -m venv "$2"
