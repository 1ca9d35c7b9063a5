#!/bin/sh
# Give a scale set as many machines as the acting manager wants; run it every minute where `az` is signed in.
# SWATHMILL_PORTAL_URL names the portal, SWATHMILL_TOKEN is of `swathmill sign-in NAME --token --role operator`. The manager tells workers that are
# not wanted any more to end, if its setting SWATHMILL_SCALE_IN_SECONDS is not 0; their machines stop and are deleted here.
#   sh infra/scale-set/scale.sh GROUP SCALE-SET [SLOTS OF A WORKER] [MOST WORKERS]
set -eu
group=$1 set=$2 slots=${3:-2} most=${4:-100}
answer=$(curl --fail --silent --show-error --config - "$SWATHMILL_PORTAL_URL/api/operations" <<END
header = "Authorization: Bearer $SWATHMILL_TOKEN"
END
)
wanted=$(printf '%s' "$answer" | sed -n 's/.*"wanted_slots": *\([0-9]*\).*/\1/p')
workers=$(((wanted + slots - 1) / slots))
[ "$workers" -le "$most" ] || workers=$most
machines=$(az vmss list-instances --resource-group "$group" --name "$set" --expand instanceView \
    --query "[].[instanceId, join(' ', instanceView.statuses[].code)]" --output tsv)
ended=$(printf '%s\n' "$machines" | awk '/PowerState\/(stopped|deallocated)/ { print $1 }')
there=$(printf '%s\n' "$machines" | awk 'NF && !/PowerState\/(stopped|deallocated)/' | wc -l)
echo "wanted: $wanted slots, $workers workers; there: $there"
# shellcheck disable=SC2086 # several numbers
[ -z "$ended" ] || az vmss delete-instances --resource-group "$group" --name "$set" --instance-ids $ended --output none
[ "$workers" -le "$there" ] || az vmss scale --resource-group "$group" --name "$set" --new-capacity "$workers" --no-wait --output none
