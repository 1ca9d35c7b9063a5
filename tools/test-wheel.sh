#!/bin/sh
# Run the sample request with the wheel as it is installed outside a checkout: in a new virtual environment, and in a
# folder that holds modules with the names of our packages. Other packages are linked from .venv.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
work=$root/build/wheel
packages="archives modis portal processes reprojection service_manager swathmill tasks worker"

sh tools/build-wheel.sh linked
wheel=$(ls "$work"/dist/*.whl)
echo "$wheel"
case $wheel in
*-py3-none-any.whl) echo "It has no kernels: is there a C compiler?" >&2; exit 1 ;;
esac

# In the wheel is every file of the packages but the kernels' source, and what is made.
.venv/bin/python -m zipfile -l "$wheel" | awk 'NR > 1 {print $1}' | grep -v '\.dist-info/' | sort >"$work/packed"
{
    # shellcheck disable=SC2086
    git -C "$work/clone" ls-files $packages | grep -v '/csrc/'
    ls -d portal/static/vendor/* tasks/request/places.zip
    echo reprojection/kernels/libkernels.so
} | sort >"$work/expected"
diff "$work/expected" "$work/packed"

.venv/bin/python -m venv --without-pip "$work/venv"
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
others=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp -al "$others/." "$site/"
rm -rf "$site"/swathmill-*.dist-info "$site"/__editable__*
.venv/bin/python -m pip --python "$work/venv/bin/python" install --quiet --disable-pip-version-check --no-deps \
    --no-index "$wheel"

mkdir "$work/folder"
cd "$work/folder"
for package in $packages; do
    echo 'raise SystemExit("wrong module")' >"$package.py"
done
# It needs neither Node nor Redis to run: of what is on PATH, these are left out.
mkdir "$work/bin"
for folder in $(printf '%s' "$PATH:$root/.venv/bin" | tr ':' ' '); do
    find "$folder" -maxdepth 1 ! -type d ! -name 'node*' ! -name 'redis-*' ! -name 'valkey-*' \
        -exec ln -s -t "$work/bin" {} + 2>/dev/null || true
done
PATH=$work/bin
"$work/venv/bin/python" -P -c "import pathlib, tasks; assert pathlib.Path('$site') in pathlib.Path(tasks.__file__).parents"
"$work/venv/bin/swathmill" --version
"$work/venv/bin/swathmill" sample archive >"$work/sample.log"
"$work/venv/bin/swathmill" run "$root/examples/sample.yaml" --archive archive --out out >"$work/run.log" ||
    { tail -n 60 "$work/run.log" .swathmill/logs/*.log >&2; exit 1; }
echo "The sample request is complete with the wheel: $(find out -name '*.tif' | wc -l) rasters"

# The library alone, as `pip install swathmill` without an extra brings it.
cd "$root"
.venv/bin/python -m venv --without-pip "$work/library"
.venv/bin/python -m tools.library_files "$("$work/library/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
.venv/bin/python -m pip --python "$work/library/bin/python" install --quiet --disable-pip-version-check --no-deps \
    --no-index "$wheel"
cd "$work/folder"
granule=$(find archive -name 'MCD15A2*.hdf' | sort | head -n 1)
"$work/library/bin/swathmill" inspect "$granule" >"$work/inspect.log"
"$work/library/bin/swathmill" reproject "$granule" --layer Lai_1km --crs EPSG:32631 --resolution 1000 --out leaf.tif
! "$work/library/bin/swathmill" up 2>"$work/up.log" && grep "swathmill\[service\]" "$work/up.log"
