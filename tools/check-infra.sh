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
# The chart is checked as it is rendered. What is skipped is argued in docs/guides/run-in-the-cloud.md, "Other fleets".
mkdir -p build/policy
if command -v helm >/dev/null; then
    helm template mill infra/helm/swathmill --set redis.address=redis:6379,workers.places[0].name=gpu \
        --set "image.digest=sha256:$(printf %064d 0)" >build/policy/chart.yaml
    .venv-policy/bin/checkov --file build/policy/chart.yaml --framework kubernetes --compact --quiet --skip-download \
        --skip-check CKV_K8S_11,CKV_K8S_15,CKV_K8S_21,CKV_K8S_35
else
    echo "The chart is not checked: the command helm is absent."
fi
# checkov knows image recipes by the name Dockerfile alone.
cp infra/Containerfile build/policy/Dockerfile
.venv-policy/bin/checkov --directory build/policy --framework dockerfile --compact --quiet --skip-download
