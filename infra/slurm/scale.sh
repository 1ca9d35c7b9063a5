#!/bin/sh
# Submit as many workers as the acting manager wants beyond those that run or wait; run it every minute (scrontab).
# SWATHMILL_PORTAL_URL names the portal, SWATHMILL_TOKEN is of `swathmill sign-in NAME --token --role operator`. The manager tells
# workers that are not wanted any more to end, if its setting SWATHMILL_SCALE_IN_SECONDS is not 0.
#   sh infra/slurm/scale.sh [SLOTS OF A WORKER] [MOST WORKERS]
set -eu
slots=${1:-2}
most=${2:-200}
answer=$(curl --fail --silent --show-error --config - "$SWATHMILL_PORTAL_URL/api/operations" <<END
header = "Authorization: Bearer $SWATHMILL_TOKEN"
END
)
wanted=$(printf '%s' "$answer" | sed -n 's/.*"wanted_slots": *\([0-9]*\).*/\1/p')
there=$(squeue --me --noheader --array --name=swathmill-worker --states=PENDING,RUNNING,CONFIGURING | wc -l)
workers=$(((wanted + slots - 1) / slots))
[ "$workers" -le "$most" ] || workers=$most
more=$((workers - there))
echo "wanted: $wanted slots, $workers workers; there: $there"
[ "$more" -le 0 ] || sbatch --array="1-$more" --cpus-per-task="$slots" "$(dirname "$0")/worker.sbatch"
