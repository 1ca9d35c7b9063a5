#!/bin/sh
# Install what a lock names: install.sh PYTHON LOCK [option of `uv pip install` and `pip install` ...]
# uv takes a tenth of pip's time. It comes with the hashes of requirements-dev.lock, and goes by pip's settings. Where
# there is no uv for the machine, or it fails, pip installs.
set -eu
cd "$(dirname "$0")/.."
python=$1
lock=$2
shift 2
# A package that is compiled runs a make of its own, which is not to have our flags.
unset MAKEFLAGS MFLAGS MAKELEVEL
# Nothing is written outside the checkout. What several environments need is linked from here.
export UV_CACHE_DIR="$PWD/.venv/uv-cache" UV_PYTHON_DOWNLOADS=never PIP_DISABLE_PIP_VERSION_CHECK=1

uv=$(command -v uv || echo .venv/bin/uv)
if [ ! -x "$uv" ]; then
    awk '/^uv==/ { on = 1 } on { print } on && !/\\$/ { exit }' requirements-dev.lock >.venv/uv.lock
    .venv/bin/python -m pip install --quiet --require-hashes -r .venv/uv.lock || true
fi

settings=$(.venv/bin/python -m pip config list)
of_pip() { printf '%s\n' "$settings" | sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" | tail -n 1; }
hand_on() { # pip's name, uv's
    value=$(of_pip "$1")
    [ -z "$value" ] || eval "[ -n \"\${$2:-}\" ] || export $2=\"\$value\""
}
hand_on index-url UV_DEFAULT_INDEX
hand_on extra-index-url UV_INDEX
hand_on find-links UV_FIND_LINKS
hand_on cert SSL_CERT_FILE

# All are fetched before the first is installed.
of=$(grep -c '^[A-Za-z0-9].*==' "$lock")
while sleep 5 >/dev/null 2>&1; do
    echo "        $(find "$UV_CACHE_DIR/archive-v0" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l) of about $of packages are here"
done &
counting=$!
trap 'kill "$counting" 2>/dev/null || true' EXIT

"$uv" pip install --quiet --python "$python" --require-hashes -r "$lock" "$@" && exit
echo "Not installed by uv; by pip, which takes longer" >&2
"$python" -m pip install --quiet --require-hashes -r "$lock" "$@"
