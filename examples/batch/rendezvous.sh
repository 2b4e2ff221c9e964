#!/bin/bash
# No launcher that han knows, only something that starts a command on each host: here ssh, one rank a host.
#   examples/batch/rendezvous.sh "node1 node2 node3" PROGRAM ARGUMENTS
# The hosts must share this folder: the secret lies in it while the job runs.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 \"HOST ...\" PROGRAM ARGUMENTS" >&2; exit 2; }
read -ra hosts <<< "$1"
shift

secret=$(mktemp "$PWD/.han-secret.XXXXXX") # for this user's eyes only
trap 'rm -f "$secret"' EXIT
# Commands in the background ignore Ctrl-C. What they have started on other hosts ends when it next writes something.
trap 'kill $(jobs -p) 2> /dev/null || true; exit 130' INT TERM
head -c 32 /dev/urandom | base64 > "$secret"

pids=()
for rank in "${!hosts[@]}"; do
    variables="HAN_RENDEZVOUS=${hosts[0]}:${PORT:-29500} HAN_RANK=$rank HAN_SIZE=${#hosts[@]}"
    variables+=" HAN_SECRET_FILE=$(printf %q "$secret")"
    "${SSH:-ssh}" "${hosts[rank]}" "cd $(printf %q "$PWD") && env $variables $(printf '%q ' "$@")" < /dev/null &
    pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
exit "$failed"
