#!/usr/bin/env bash
# Builds the container image and runs it as packaging/compose/compose.yaml does, as root.
#
# The base is made by debootstrap, since a registry need not be reachable: Debian with its own
# Python.  buildah builds (docker's format, isolation chroot), runc runs: root file system
# read-only, one volume, no capability, the default profile of system calls, a network of its own.
#
#   the health check of the image answers; a Prometheus, configured as in packaging/compose, scrapes it
#   the process is not root, nothing but the volume can be written, no port of NSQ is open
#   kill -9 in the middle of a burst, and a start on the same volume: every confirmed message is there
#   SIGTERM: an orderly stop, and the next start finds it clean
#
#   SUITE=trixie              another Debian (bookworm has Python 3.11, trixie 3.13)
#   PENSTOCK_NO_COMPILE=1     the interpreted program: minutes less
#   STORAGE_DRIVER=vfs        where overlay file systems cannot be mounted
#
# Base and layers stay below build/ for the next time.  What this script starts, it removes.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
. packaging/roots.sh  # base_root, and where it puts it

SUITE=${SUITE:-bookworm}
NO_COMPILE=${PENSTOCK_NO_COMPILE:-0}
BASE=localhost/penstock-base:$SUITE
IMAGE=localhost/penstock-broker:check-$SUITE
NAME=penstock-check-$$
WORK=$PWD/build/check-image/$NAME
ADDRESS=192.0.2.1  # of the container besides 127.0.0.1: clients there count as coming from outside
USER_NAME=checker
PASSWORD=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
READY="import urllib.request; urllib.request.urlopen('http://127.0.0.1:15672/healthz/ready')"
NSQ_PORTS="4150 4151 4152 4160 4161"
working_container=""
prometheus=""
began=$SECONDS

say() { printf '%4d s  %s\n' $((SECONDS - began)) "$*"; }

die() {
    printf 'check_image: %s\n' "$@" >&2
    [ ! -s "$WORK/log" ] || tail -n 30 "$WORK/log" >&2
    exit 1
}

needs() {
    local program package missing=""
    while read -r program package; do
        command -v "$program" >/dev/null 2>&1 || missing+=" $package"
    done <<'END'
buildah buildah
runc runc
debootstrap debootstrap
ip iproute2
prometheus prometheus
python3 python3
ss iproute2
END
    [ -e /usr/share/containers/seccomp.json ] || missing+=" golang-github-containers-common"
    [ -z "$missing" ] || die "apt-get install$missing"
    [ "$(id -u)" = 0 ] || die "debootstrap and network namespaces want root"
}

store() {
    local driver=${STORAGE_DRIVER:-overlay}
    buildah --root "$PWD/build/containers/$driver" --runroot "$PWD/build/containers/$driver-run" \
        --storage-driver "$driver" "$@"
}
runtime() { runc --root "$PWD/build/check-image/runc" "$@"; }
inside() { runtime exec "$NAME" "$@"; }

cleanup() {
    local code=$?
    set +e
    [ -z "$prometheus" ] || kill "$prometheus"
    runtime delete --force "$NAME" >/dev/null 2>&1
    if [ -n "$working_container" ]; then
        store umount "$working_container" >/dev/null
        store rm "$working_container" >/dev/null
    fi
    ip netns delete "$NAME" 2>/dev/null
    rm -rf "/etc/netns/$NAME"
    rm -rf "$WORK"
    [ "$code" = 0 ] || say "FAILED"
}

# With the certificates and the package index of this machine: what pip reaches here, a build reaches.
make_base() {
    local container
    base_root "$SUITE"
    if store inspect --type image "$BASE" >/dev/null 2>&1; then return; fi
    say "making the base"
    container=$(store from scratch)
    tar -C "$ROOTS/$SUITE-base" --numeric-owner --one-file-system -cf "$WORK/base.tar" .
    store add --quiet "$container" "$WORK/base.tar" / >/dev/null
    rm "$WORK/base.tar"
    store run --isolation chroot "$container" -- sh -c 'apt-get update -q && apt-get install -q -y \
        --no-install-recommends ca-certificates python3 python3-venv \
        && rm -rf /var/lib/apt/lists/* /var/cache/apt/*' >"$WORK/base.log" 2>&1 \
        || { tail -n 40 "$WORK/base.log" >&2; die "the base cannot be made"; }
    store copy --quiet "$container" "$CERTIFICATES" "$CERTIFICATES" >/dev/null
    printf '[global]\ncert = %s\n%s\n' "$CERTIFICATES" \
        "${PIP_INDEX_URL:+index-url = $PIP_INDEX_URL}" >"$WORK/pip.conf"
    store copy --quiet "$container" "$WORK/pip.conf" /etc/pip.conf >/dev/null
    store commit --quiet "$container" "$BASE" >/dev/null
    store rm "$container" >/dev/null
}

build_image() {
    say "building the image"
    store build --quiet --format docker --isolation chroot --layers --pull-never \
        --build-arg "BASE=$BASE" --build-arg "BUILD_PACKAGES=gcc libc6-dev python3-dev" \
        --build-arg "PENSTOCK_NO_COMPILE=$NO_COMPILE" \
        --file packaging/docker/Dockerfile --tag "$IMAGE" . >"$WORK/build.log" 2>&1 \
        || { tail -n 40 "$WORK/build.log" >&2; die "the image cannot be built"; }
    store inspect --type image "$IMAGE" >"$WORK/image.json"
    working_container=$(store from --pull-never "$IMAGE")
    root=$(store mount "$working_container")
    say "$(du -sm "$root/opt/penstock" | cut -f1) MB for the program, $(du -sm "$root" | cut -f1) MB with the base"
}

# As docker does for a new volume: owner and mode are those of the directory in the image.
prepare() {
    local health
    cp -a "$root/var/lib/penstock" "$WORK/volume"
    ip netns add "$NAME"
    ip -n "$NAME" link set lo up
    ip -n "$NAME" address add "$ADDRESS/32" dev lo
    python3 packaging/oci_config.py "$root" "$WORK/volume" "/run/netns/$NAME" \
        "PENSTOCK_DEFAULT_USER=$USER_NAME" "PENSTOCK_DEFAULT_PASS=$PASSWORD" \
        <"$WORK/image.json" >"$WORK/config.json"
    health=$(python3 -c '
import json, sys
kind, *words = json.load(sys.stdin)["Docker"]["config"]["Healthcheck"]["Test"]
assert kind == "CMD", kind
print(*words, sep="\n")' <"$WORK/image.json")
    mapfile -t health_check <<<"$health"
}

start() {
    local until=$((SECONDS + 60))
    runtime run --detach --bundle "$WORK" --pid-file "$WORK/pid" "$NAME" >>"$WORK/log" 2>&1 \
        || die "the container does not start"
    until inside "${health_check[@]}" >"$WORK/health" 2>&1; do
        [ -d "/proc/$(cat "$WORK/pid")" ] || die "the container has ended"
        [ $SECONDS -lt $until ] || die "the health check fails: $(cat "$WORK/health")"
        sleep 0.2
    done
    say "health check '${health_check[*]}': $(cat "$WORK/health")"
    # It answers during recovery, too; clients may come later.
    until inside python3 -c "$READY" 2>"$WORK/health"; do
        [ $SECONDS -lt $until ] || die "it is not ready: $(cat "$WORK/health")"
        sleep 0.2
    done
}

gone() {  # within so many seconds
    local until=$((SECONDS + $1))
    while [ -d "/proc/$(cat "$WORK/pid")" ]; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.1
    done
    runtime delete --force "$NAME" 2>/dev/null || true
}

status_of() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$(cat "$WORK/pid")/status"; }

look_at_the_process() {
    local port open
    [ "$(status_of Uid | tr -s '\t ' ' ')" = "5672 5672 5672 5672" ] || die "user $(status_of Uid)"
    [ "$(status_of Gid | tr -s '\t ' ' ')" = "5672 5672 5672 5672" ] || die "group $(status_of Gid)"
    [ "$(status_of CapEff)" = 0000000000000000 ] || die "capabilities $(status_of CapEff)"
    [ "$(status_of NoNewPrivs)" = 1 ] || die "the process may gain privileges"
    [ "$(status_of Seccomp)" = 2 ] || die "system calls are not filtered"
    inside sh -c '! touch /probe /opt/penstock/probe /tmp/probe' 2>"$WORK/touched" \
        || die "the root file system can be written"
    [ "$(grep -c "Read-only file system" "$WORK/touched")" = 3 ] || die "$(cat "$WORK/touched")"
    inside sh -c 'touch probe && rm probe' || die "the working directory is not the volume"
    inside python3 -c 'import tempfile; tempfile.TemporaryFile()' || die "no temporary files"
    if inside sh -c 'command -v cc gcc pip'; then die "the image has tools to build"; fi
    open=$(ip netns exec "$NAME" ss -Hltn | awk '{print $4}' | sort -u)
    for port in $NSQ_PORTS; do
        if grep -q ":$port\$" <<<"$open"; then die "NSQ's port $port is open:" "$open"; fi
    done
    for port in 5672 15672 15692; do
        grep -q "^0.0.0.0:$port\$" <<<"$open" || die "port $port is not open:" "$open"
    done
    [ "$(inside penstock version | cut -d' ' -f3)" = "$build" ] || die "$(inside penstock version)"
    say "$(inside penstock version); user 5672, no capability, root read-only; listening: $(tr '\n' ' ' <<<"$open")"
}

# Prometheus beside it, as the compose file has it: from another address, under the name "broker".
look_at_the_metrics() {
    local until=$((SECONDS + 60)) found="" url=http://127.0.0.1:9090/api/v1/query
    mkdir -p "/etc/netns/$NAME"
    printf '127.0.0.1 localhost\n%s broker\n' "$ADDRESS" >"/etc/netns/$NAME/hosts"
    cp packaging/compose/prometheus.yml monitoring/alerts.yml "$WORK"
    ip netns exec "$NAME" prometheus --config.file="$WORK/prometheus.yml" \
        --storage.tsdb.path="$WORK/prometheus" --web.listen-address=127.0.0.1:9090 \
        >"$WORK/prometheus.log" 2>&1 &
    prometheus=$!
    until [ "$found" = "1" ]; do
        [ $SECONDS -lt $until ] || die "Prometheus scrapes nothing: $(tail -n 5 "$WORK/prometheus.log")"
        sleep 1
        found=$(ip netns exec "$NAME" python3 -c "
import json, urllib.request
with urllib.request.urlopen('$url?query=up%7Bjob=%22penstock%22%7D') as answer:
    print(*(row['value'][1] for row in json.load(answer)['data']['result']))" 2>/dev/null) || true
    done
    kill "$prometheus"
    wait "$prometheus" || true
    prometheus=""
    say "Prometheus scrapes it"
}

# A client inside the container, on the address that counts as outside.
client() {
    inside /opt/penstock/bin/python -c "
from penstock.client.amqp import Connection, Endpoint
from penstock.protocols.amqp.codec.properties import Properties
connection = Connection(Endpoint.parse('amqp://$USER_NAME:$PASSWORD@$ADDRESS:5672/'))
channel = connection.channel()
$1"
}

# Until it is killed: after each batch how many messages are confirmed.
publish() {
    client "
import itertools
persistent = Properties(delivery_mode=2)
channel.queue_declare('check', durable=True)
channel.confirm_select()
for batch in itertools.count(1):
    for number in range(batch * 100 - 100, batch * 100):
        channel.publish(b'%d' % number, routing_key='check', properties=persistent)
    assert not channel.wait_for_confirms()
    print(batch * 100, flush=True)
"
}

consume_all() {
    client "
expected, numbers = $1, set()
channel.queue_declare('check', passive=True)
channel.consume('check', no_ack=False)
while (delivery := channel.next_delivery(2)) is not None:
    numbers.add(int(delivery.body))
missing = set(range(expected)) - numbers
assert not missing, f'{len(missing)} of {expected} confirmed messages are missing'
print(f'{expected} messages were confirmed, {len(numbers)} are there, none is missing')
connection.close()
"
}

kill_in_a_burst() {
    local confirmed publisher
    publish >"$WORK/confirmed" 2>"$WORK/publisher" &
    publisher=$!
    sleep 5
    kill -KILL "$(cat "$WORK/pid")"
    wait "$publisher" 2>/dev/null && die "the publisher ended by itself"
    gone 20 || die "the process survives kill -9"
    confirmed=$(tail -n 1 "$WORK/confirmed")
    [ "${confirmed:-0}" -gt 0 ] || die "nothing was confirmed: $(cat "$WORK/publisher")"
    say "kill -9 after $confirmed confirmed messages"
    start
    consume_all "$confirmed" >"$WORK/consumed" || die "messages are lost"
    say "$(cat "$WORK/consumed")"
}

stop_in_order() {
    local init recovered began_s=$SECONDS
    init=$(cat "$WORK/pid")
    runtime kill "$NAME" TERM
    gone 30 || die "SIGTERM does not end process $init"
    say "SIGTERM: stopped in $((SECONDS - began_s)) s"
    start
    recovered=$(grep '^  recovered' "$WORK/log" | tail -n 1)
    if grep -q "not clean" <<<"$recovered"; then die "the stop was not an orderly one:" "$recovered"; fi
    say "the next start:$(tr -s ' ' <<<"$recovered")"
}

trap cleanup EXIT
mkdir -p "$WORK"
needs
[ "$NO_COMPILE" = 1 ] && build=interpreted, || build=compiled,
make_base
build_image
prepare
start
look_at_the_process
look_at_the_metrics
kill_in_a_burst
stop_in_order
say "the image is as it should be"
