#!/usr/bin/env bash
# A newcomer's machine: a minimal Debian with the packages that README.md names, and nothing else, on
# which the two commands of README.md are run in a clone of the last commit.
#
#   packaging/check_debian.sh                   bookworm and trixie, both commands
#   packaging/check_debian.sh --run trixie      `make run` only
#   ARGS='tests/queues' packaging/check_debian.sh bookworm       `make test` with these arguments
#
# `make run` must be ready within two minutes.  `make test` skips what needs other programs.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/roots.sh
in_own_namespaces "$0" "$@"

READY_LIMIT_S=120
ip link set lo up 2>/dev/null || true

packages() { sed -n 's/.*apt-get install \([a-z0-9 -]*\)`.*/\1/p' README.md | head -n 1; }

prepare() {
    local suite=$1 root=$ROOTS/$1-newcomer named
    read -ra named <<<"$(packages)"
    [ "${#named[@]}" -ge 3 ] || die "README.md names no packages"
    fresh_root "$suite" newcomer
    attach "$root"
    umount "$root/var/cache/pip"  # a newcomer has no cache
    say "$suite: installing ${named[*]}"
    install_packages "$root" "${named[@]}"
    # Debian's own certificates, just installed, do not know a proxy of this machine.
    [ ! -e "$CERTIFICATES" ] || cp -L "$CERTIFICATES" "$root$CERTIFICATES"
    # An installed Debian knows its own name; a root made by debootstrap has no such file.
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(uname -n)" >"$root/etc/hosts"
    git clone -q --no-hardlinks . "$root/srv/penstock"
}

in_clone() {
    local root=$1
    shift
    inside "$root" sh -c 'cd /srv/penstock && exec "$@"' sh "$@"
}

ready_line() {
    local suite=$1 root=$ROOTS/$1-newcomer log=$ROOTS/$1-run.log began=$SECONDS broker
    say "$suite: make run"
    : >"$log"  # an older one has a ready line
    in_clone "$root" make run >"$log" 2>&1 &
    broker=$!
    until grep -q '^ready in ' "$log"; do
        kill -0 "$broker" 2>/dev/null || { tail -n 40 "$log" >&2; die "$suite: make run ended"; }
        sleep 0.5
    done
    say "$suite: ready after $((SECONDS - began)) s"
    [ $((SECONDS - began)) -le "${PENSTOCK_READY_LIMIT_S:-$READY_LIMIT_S}" ] || die "$suite: that took too long"
    inside "$root" /srv/penstock/.venv/bin/penstock version | grep -q ' compiled' || die "$suite: not compiled"
    kill "$(sed -n 's/^Penstock .*, pid \([0-9]*\).*/\1/p' "$log")"
    wait "$broker" || true
}

check() {
    local suite=$1
    prepare "$suite"
    ready_line "$suite"
    [ "$only_run" = 0 ] || return 0
    say "$suite: make test"
    in_clone "$ROOTS/$suite-newcomer" make test ${ARGS:+"ARGS=$ARGS"}
    say "$suite: both commands pass"
}

only_run=0
[ "${1:-}" != --run ] || { only_run=1; shift; }
[ $# -gt 0 ] || set -- bookworm trixie
for suite in "$@"; do check "$suite"; done
