#!/usr/bin/env bash
# Runs the pods of the Helm chart as a kubelet would, in containers on this machine, as root: three
# nodes and three etcds, with the image that check_image.sh has built and helm of check_chart.sh.
#
# packaging/helm/check/pods.py says what there is of Kubernetes, and what is done to the pods:
# while a client publishes with confirms, the master's node is killed, all nodes are drained, stopped
# and started one by one, an etcd is killed; every confirmed message is there at the end.
#
#   SUITE=trixie          the image of another Debian, as in check_image.sh
#   ETCD=/usr/bin/etcd    another etcd than the one that is installed
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

SUITE=${SUITE:-bookworm}
IMAGE=localhost/penstock-broker:check-$SUITE
WORK=$PWD/build/run-chart/$$
HELM=$(sed -n 's/^HELM=//p' packaging/check_chart.sh)
SCHEMAS=$(sed -n 's/^SCHEMAS=\([^ ]*\).*/\1/p' packaging/check_chart.sh)
helm=build/tools/helm-$HELM/helm
python=build/tools/kubernetes-validate-$SCHEMAS/bin/python  # it has a reader of YAML
container=""

die() {
    printf 'run_chart: %s\n' "$@" >&2
    exit 1
}

store() {
    local driver=${STORAGE_DRIVER:-overlay}
    buildah --root "$PWD/build/containers/$driver" --runroot "$PWD/build/containers/$driver-run" \
        --storage-driver "$driver" "$@"
}

cleanup() {
    if [ -n "$container" ]; then
        store umount "$container" >/dev/null || true
        store rm "$container" >/dev/null || true
    fi
    rm -rf "$WORK"
}

trap cleanup EXIT
ETCD=${ETCD:-$(command -v etcd || true)}
export ETCD
[ -n "$ETCD" ] || die "etcd is missing: apt-get install etcd-server"
[ -x "$helm" ] && [ -x "$python" ] || die "packaging/check_chart.sh comes first: it has the tools"
mkdir -p "$WORK"
store inspect --type image "$IMAGE" >"$WORK/image.json" 2>/dev/null \
    || die "packaging/check_image.sh comes first: it builds the image"
container=$(store from --pull-never "$IMAGE")
env -u KUBECONFIG "$helm" template check packaging/helm/penstock --kube-version 1.34.0 \
    --set replicas=3 --set drainTimeoutSeconds=10 >"$WORK/objects.yaml"
"$python" -c 'import json, sys, yaml
json.dump([one for one in yaml.safe_load_all(sys.stdin) if one], sys.stdout)' \
    <"$WORK/objects.yaml" >"$WORK/objects.json"
python3 packaging/helm/check/pods.py "$WORK/objects.json" "$WORK/image.json" \
    "$(store mount "$container")" "$WORK/pods"
