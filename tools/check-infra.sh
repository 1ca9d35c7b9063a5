#!/bin/sh
# Check infra/ against security policies, and Bicep against each resource's published type where its compiler is.
set -eu
cd "$(dirname "$0")/.."
if [ ! -x .venv-policy/bin/checkov ]; then
    .venv/bin/python -m venv .venv-policy
    sh tools/install.sh .venv-policy/bin/python requirements-policy.lock
fi
.venv-policy/bin/checkov --directory infra --framework bicep --compact --quiet --skip-download
if command -v bicep >/dev/null; then
    for file in main registry; do
        bicep build "infra/bicep/$file.bicep" --stdout >/dev/null
    done
else
    echo "The types of infra/bicep are not checked: the command bicep is absent."
fi
# checkov knows image recipes by the name Dockerfile alone.
mkdir -p build/policy
cp infra/Containerfile build/policy/Dockerfile
.venv-policy/bin/checkov --directory build/policy --framework dockerfile --compact --quiet --skip-download
