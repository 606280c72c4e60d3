#!/usr/bin/env bash
# Builds the wheel from the source distribution and tries it, on Debian releases with their own Python.
#
#   packaging/check_wheel.sh [--archive-all] [SUITE:PYTHON...]
#
# For each: in a root with compiler and headers `pip wheel` and `auditwheel repair`, then in a root
# without them the wheel is installed and tried compiled: serve, publish, consume, stop, and start
# again.  In the first, or with --archive-all in each, Spark archives a queue to Parquet.
#
# Runs as root.  Roots, objects and downloads stay in build/roots for the next time: see roots.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/roots.sh
in_own_namespaces packaging/check_wheel.sh "$@"

TARGETS=(bookworm:3.11 trixie:3.13 sid:3.15)
MESSAGES=1000
SOURCE=/build/penstock
PROGRAM=/opt/penstock/bin

read_arguments() {
    archive_all=no
    [ "${1:-}" != --archive-all ] || { archive_all=yes; shift; }
    [ $# = 0 ] || TARGETS=("$@")
}

make_sdist() {
    say "making the source distribution"
    rm -f dist/penstock_broker-*.tar.gz
    logged "$ROOTS/sdist.log" make sdist
    sdist=$(echo dist/penstock_broker-*.tar.gz)
}

# The source in the build root, with the objects of the last time.
unpack() {
    local place=$1$SOURCE
    mkdir -p "$place"
    find "$place" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    rm -rf "$place"/build/lib* "$place"/build/bdist* "$place/build/wheel"
    tar -xzf "$sdist" --strip-components 1 --no-same-owner -C "$place"
}

build_wheel() {
    local suite=$1 python=$2 root=$ROOTS/$1-build$2
    kept_root "$suite" "build$python" gcc libc6-dev "python$python-dev" "python$python-venv"
    unpack "$root"
    say "$suite: building the wheel with Python $python"
    logged "$ROOTS/$suite-wheel.log" inside "$root" sh -euc 'cd "$1"
        [ -x /build/venv/bin/pip ] || "python$2" -m venv /build/venv
        PATH=/build/venv/bin:$PATH
        python tools/requirements.py build release >/build/requirements.txt
        pip install -q --require-hashes --no-deps -r /build/requirements.txt
        PENSTOCK_REQUIRE_COMPILED=1 nice pip wheel -q --no-deps --no-build-isolation -w build/wheel .
        rm -rf dist
        auditwheel repair --wheel-dir dist build/wheel/*.whl' sh "$SOURCE" "$python"
    wheels=$root$SOURCE/dist
    detach "$root"
}

install_wheel() {
    local suite=$1 python=$2 extra=$3
    root=$ROOTS/$suite-run$python
    kept_root "$suite" "run$python" "python$python-venv"
    if inside "$root" sh -c 'command -v cc gcc || ls /usr/include/python3*/Python.h' 2>/dev/null; then
        die "$root has a compiler or headers"
    fi
    say "$suite: installing the wheel$extra"
    rm -rf "$root/opt/penstock" "$root/trial"
    mkdir -p "$root/trial"
    cp "$wheels"/*.whl packaging/try_broker.py "$root/trial"
    python3 tools/requirements.py program $(tr -d '[]' <<<"$extra") >"$root/trial/requirements.txt"
    wheel=$(basename "$root"/trial/*.whl)
    logged "$ROOTS/$suite-install.log" inside "$root" sh -euc '"python$1" -m venv /opt/penstock
        /opt/penstock/bin/pip install -q --require-hashes --no-deps -r /trial/requirements.txt
        /opt/penstock/bin/pip install -q --no-deps "/trial/$2"' sh "$python" "$wheel"
}

compiled() { alone "$root" env PENSTOCK_REQUIRE_COMPILED=1 "$PROGRAM/$1" "${@:2}"; }
messages() { compiled python /trial/try_broker.py "$@"; }

start() {
    EXEC=exec compiled penstock serve --data-dir /trial/data >>"$root/trial/log" 2>&1 &
    broker=$!
    local tries
    for tries in {1..60}; do
        ! compiled penstock ping >/dev/null 2>&1 || return 0
        kill -0 "$broker" 2>/dev/null || break
        sleep 0.5
    done
    cat "$root/trial/log" >&2
    die "the broker does not answer"
}

stop() {
    kill -TERM "$broker"
    wait "$broker" || die "the broker ended with code $?: $(tail -n 5 "$root/trial/log")"
}

try_wheel() {
    compiled penstock version | tee "$root/trial/version"
    grep -q ", compiled, CPython $1" "$root/trial/version" || die "not compiled, or another Python"
    start
    messages publish "$MESSAGES"
    stop
    start
    messages count "$MESSAGES"
    messages consume "$MESSAGES"
}

try_archive() {
    say "$1: archiving a queue with Spark"
    messages publish "$MESSAGES"
    logged "$ROOTS/$1-archive.log" compiled penstock pipeline archive --queue orders --to /trial/lake
    messages table "$MESSAGES" /trial/lake
    messages count 0
}

check() {
    local suite=$1 python=$2 archive=$3 began=$SECONDS built
    build_wheel "$suite" "$python"
    built=$((SECONDS - began))
    install_wheel "$suite" "$python" "$([ "$archive" = no ] || echo '[spark-jre]')"
    try_wheel "$python"
    [ "$archive" = no ] || try_archive "$suite"
    stop
    detach "$root"
    results+=$(printf '%5d s to build, %4d s to try  %s, Python %s, archive: %s  %s' "$built" \
        $((SECONDS - began - built)) "$suite" "$python" "$archive" "$wheel")$'\n'
}

read_arguments "$@"
mkdir -p "$ROOTS"
make_sdist
own_network
archive=yes
results=""
for target in "${TARGETS[@]}"; do
    check "${target%:*}" "${target#*:}" "$archive"
    archive=$archive_all
done
printf '%s' "$results"
