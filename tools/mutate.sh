#!/bin/sh
# Mutate one module with mutmut, in a copy of the code, and list the mutants that its tests do not see.
#     tools/mutate.sh PYTHON MODULE TEST...
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
module=$2
shift 2
copy=build/mutate
rm -rf "$copy"
mkdir -p "$copy/tests"
for room in archives modis processes reprojection service_manager tasks worker; do
    cp -r "$room" "$copy/"
done
cp -r tests/service_manager tests/simulation tests/tasks tests/worker tests/*.py "$copy/tests/" 2>/dev/null || true
find "$copy" -name __pycache__ -prune -exec rm -rf {} +
cat > "$copy/setup.cfg" <<END
[mutmut]
source_paths = ${module%%/*}/
only_mutate = $module
pytest_add_cli_args_test_selection =
$(printf '    %s\n' "$@")
also_copy =
    archives
    modis
    processes
    reprojection
    service_manager
    tasks
    worker
    tests
    pyproject.toml
END
cat > "$copy/pyproject.toml" <<END
[tool.pytest.ini_options]
addopts = "--import-mode=importlib"
pythonpath = ["."]
END
export PYTHONPATH="$PWD/build/mutmut"
cd "$copy"
"$python" -m mutmut run --max-children 2 > run.log 2>&1 || { tail -n 20 run.log; exit 1; }
"$python" -m mutmut results
tail -c 120 run.log
echo
echo "See one: cd $copy && PYTHONPATH=../mutmut $python -m mutmut show NAME"
