#!/bin/sh
# Build the source distribution from a clean clone of the last commit, the wheel from it, and put both into dist.
# With the argument `linked`, the kernels are those of the checkout: compiling them takes most of the time.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
python=$root/.venv/bin/python
work=$root/build/wheel
rm -rf "$work" dist
mkdir -p "$work" dist

echo "Building from the last commit: the source distribution, then the wheel from it, about a minute"
git clone --quiet --no-local --depth 1 "file://$root" "$work/clone"
cp -r portal/static/vendor "$work/clone/portal/static/"
cp tasks/request/places.zip "$work/clone/tasks/request/"
cd "$work/clone"
"$python" -c 'import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])' "$root/dist" >"$work/sdist.log"
tar -xzf "$root"/dist/swathmill-*.tar.gz -C "$work"
cd "$work"/swathmill-*/
if [ "${1:-}" = linked ]; then
    folder=$("$python" -c 'if True:
        from setuptools import Distribution
        build = Distribution().get_command_obj("build")
        build.ensure_finalized()
        print(build.build_platlib)')/reprojection/kernels
    mkdir -p "$folder"
    cp "$root/reprojection/kernels/libkernels.so" "$folder/"
fi
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$root/dist" .
for made in "$root"/dist/*; do echo "${made#"$root"/}"; done
