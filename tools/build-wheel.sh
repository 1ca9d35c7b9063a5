#!/bin/sh
# Build the source distribution from a clean clone of the last commit, the wheel from it, and put both into dist. Its
# kernels run on any CPU; each instruction set of them that this machine has is tried.
# With the argument `linked`, the kernels are the checkout's, for this CPU, and both go into build/wheel/dist: compiling
# takes most of the time.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
python=$root/.venv/bin/python
work=$root/build/wheel
dist=$root/dist
[ "${1:-}" != linked ] || dist=$work/dist
rm -rf "$work" "$dist"
mkdir -p "$work" "$dist"

echo "Building from the last commit: the source distribution, then the wheel from it, about a minute"
git clone --quiet --no-local --depth 1 "file://$root" "$work/clone"
cp -r portal/static/vendor "$work/clone/portal/static/"
cp tasks/request/places.zip "$work/clone/tasks/request/"
cd "$work/clone"
"$python" -c 'import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])' "$dist" >"$work/sdist.log"
tar -xzf "$dist"/swathmill-*.tar.gz -C "$work"
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
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$dist" .
for made in "$dist"/*; do echo "${made#"$root"/}"; done
[ "${1:-}" = linked ] && exit
"$python" -m zipfile -e "$dist"/swathmill-*.whl "$work/packed"
kernels=$work/packed/reprojection/kernels/libkernels.so
[ ! -f "$kernels" ] || (cd "$root" && SWATHMILL_KERNELS=$kernels "$python" -m tests.reprojection.kernels.instruction_sets)
