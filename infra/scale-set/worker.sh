#!/bin/sh
# The first start of a machine of infra/scale-set/workers.bicep: one worker, and a runner of the reduction pool beside
# it. The worker asks Azure whether the machine is about to be taken away; the machine ends with its worker.
# The template puts its values in place of the words in braces.
set -eu
image='{image}' registry='{registry}' identity='{identity}' vault='{vault}' slots='{slots}'
vault=${vault%/}
metadata=http://169.254.169.254/metadata
runs=10.89.9.0/24

ask() { curl --fail --silent --show-error --retry 5 --header Metadata:true "$metadata/$1"; }
token() { ask "identity/oauth2/token?api-version=2018-02-01&client_id=$identity&resource=$1" | jq --raw-output .access_token; }
secret() {
    curl --fail --silent --show-error --retry 5 --config - "$vault/secrets/$1?api-version=7.4" <<END | jq --raw-output .value
header = "Authorization: Bearer $(token "https://${vault#https://*.}")"
END
}

command -v podman >/dev/null || { apt-get update && apt-get install --yes --no-install-recommends podman jq curl iptables; } >/dev/null
if [ -n "$registry" ]; then
    # A registry takes a token of the identity and gives its own.
    own=$(curl --fail --silent --show-error --retry 5 --data @- "https://$registry/oauth2/exchange" <<END | jq --raw-output .refresh_token
grant_type=access_token&service=$registry&access_token=$(token https://management.azure.com/)
END
    )
    printf '%s' "$own" | podman login --username 00000000-0000-0000-0000-000000000000 --password-stdin "$registry"
fi
umask 077
settings=$(mktemp)
cat >"$settings" <<END
{settings}
SWATHMILL_DATA_DIR=/data
SWATHMILL_SLOTS=$slots
END
cp "$settings" "$settings.worker"
cat >>"$settings.worker" <<END
AZURE_CLIENT_ID=$identity
SWATHMILL_STORAGE={storage}
SWATHMILL_SOURCES={sources}
SWATHMILL_REDIS_URL=$(secret redis-url)
SWATHMILL_EARTHDATA_TOKEN=$(secret earthdata-token)
SWATHMILL_REDUCTION_POOL=reductions:8002
SWATHMILL_INSTANCE_METADATA=$metadata
SWATHMILL_WORKER_NAME=$(ask "instance/compute/name?api-version=2021-02-01&format=text")
END

# What runs programs of others reaches storage, for its links, and not the address that hands out the identity.
podman network exists runs || podman network create --subnet "$runs" runs
iptables --insert FORWARD --source "$runs" --destination 169.254.0.0/16 --jump REJECT
iptables --insert FORWARD --source "$runs" --destination 168.63.129.16 --jump REJECT
set -- --detach --replace --read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges --init
podman run "$@" --name reductions --network runs --env-file "$settings" --env SWATHMILL_RUNNER_ADDRESS=0.0.0.0:8002 \
    --volume reductions:/data "$image" python -P -m worker.pool
podman run "$@" --name worker --network podman --network runs --env-file "$settings.worker" \
    --volume worker:/data "$image" python -P -m worker
rm "$settings" "$settings.worker"

# The worker ends in time when Azure is about to take the machine, and when the manager has told it to.
podman wait worker >/dev/null
podman stop --time 60 reductions
poweroff
