#!/bin/sh
# Make a virtual environment with pip: make-venv.sh PYTHON FOLDER
# By uv where it is on PATH. Python's own way takes 8 s of a processor to install pip, most of it to compile what is
# never used; so pip's wheel, which comes with Python, is unpacked, and what runs of it is compiled then.
set -eu
if command -v uv >/dev/null; then
    UV_CACHE_DIR="$2/uv-cache" uv venv --quiet --seed --allow-existing --python "$1" "$2" && exit
fi
wheel=$("$1" -c 'if True:
    import ensurepip, sysconfig
    from pathlib import Path
    # Debian has the wheels of all its Pythons in one folder.
    folders = Path(ensurepip.__file__).parent / "_bundled", Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "-")
    print(*sorted(str(wheel) for folder in folders for wheel in folder.glob("pip-*.whl"))[-1:])')
if [ -z "$wheel" ]; then
    "$1" -m venv "$2"
    exit
fi
"$1" -m venv --without-pip "$2"
site=$("$2/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
[ -d "$site/pip" ] || "$2/bin/python" -m zipfile -e "$wheel" "$site"
