#!/usr/bin/env bash
# Builds the Debian package and tries it in a minimal Debian: install, upgrade, remove, purge.
#
#   packaging/check_deb.sh         the wheel is taken from dist: `make wheel` first
#   SUITE=bookworm                 another Debian, with the Python that the package is built for
#
#   lintian finds nothing; apt finds what the package needs; files, account and unit are right
#   a systemd of the root's own starts the service: with the unit's limits, and no network but its own
#   confirmed messages are there after kill -9 and after an upgrade, which starts the service again
#   messages and settings stay when the package is removed, and are gone when it is purged
#
# Runs as root.  No mount and no process is left, but the root, below build/roots, until the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/roots.sh
in_own_namespaces packaging/check_deb.sh "$@"

SUITE=${SUITE:-bookworm}
NEXT=0.1.1~check
MESSAGES=1000
UNIT=/usr/lib/systemd/system/penstock.service
WANTED=/etc/systemd/system/multi-user.target.wants/penstock.service
SETTINGS=/etc/penstock/penstock.env
root=$ROOTS/$SUITE-deb
groups=$ROOTS/cgroup
init=""

build() {
    say "building the package"
    rm -rf build/deb/check build/deb/next
    logged "$ROOTS/deb-build.log" env DEB_OUT=build/deb/check packaging/build_deb.sh
    logged "$ROOTS/deb-build.log" env DEB_OUT=build/deb/next DEB_VERSION="$NEXT" packaging/build_deb.sh
    package=$(basename build/deb/check/*.deb)
    next=$(basename build/deb/next/*.deb)
}

lint() {
    command -v lintian >/dev/null || die "lintian is missing (apt-get install lintian)"
    say "lintian"
    lintian --allow-root --fail-on error,warning "build/deb/check/$package" 2>"$ROOTS/lintian.log" \
        || die "lintian"
}

make_root() {
    say "$SUITE: making the root, with systemd"
    fresh_root "$SUITE" deb
    attach "$root"
    install_packages "$root" systemd
    mkdir -p "$root/trial"
    cp build/deb/check/*.deb build/deb/next/*.deb packaging/try_broker.py "$root/trial"
}

is() {
    local path=$1 expected=$2 found
    found=$(inside "$root" stat -c '%a %U:%G' "$path")
    [ "$found" = "$expected" ] || die "$path is $found, not $expected"
}

is_gone() {
    local path
    for path in "$@"; do
        [ ! -e "$root$path" ] && [ ! -L "$root$path" ] || die "$path is still there"
    done
}

# A settings file that was changed is no difference.
check_system() {
    local found
    say "files, account and unit"
    found=$(inside "$root" dpkg --verify penstock | grep -v " c $SETTINGS" || true)
    [ -z "$found" ] || die "files differ from the package's: $found"
    found=$(inside "$root" find /usr/lib/penstock ! -user root)
    [ -z "$found" ] || die "files of the program are not root's: $found"
    is /usr/lib/penstock/bin/penstock "755 root:root"
    is /etc/penstock "755 root:root"
    is "$SETTINGS" "640 root:root"
    is /var/lib/penstock "700 penstock:penstock"
    inside "$root" getent passwd penstock | grep -q ':/var/lib/penstock:/usr/sbin/nologin$' || die "account"
    [ -L "$root$WANTED" ] || die "the service is not enabled"
    found=$(inside "$root" systemd-analyze verify --man=no "$UNIT" 2>&1) || die "the unit: $found"
    [ -z "$found" ] || die "the unit: $found"
    inside "$root" setpriv --reuid=penstock --regid=penstock --clear-groups \
        env PENSTOCK_REQUIRE_COMPILED=1 penstock version
}

# The first process of the booted root, in namespaces of its own: ends as its systemd.
begin() {
    set -eu
    cd "$1"
    mount --bind . "$PWD"
    cd "$PWD"
    mount -t proc proc proc
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=0755 tmpfs run
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
    mount -t tmpfs -o mode=1777 tmpfs dev/shm
    ip link set lo up
    pivot_root . mnt
    umount -l /mnt
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=penstock-check \
        /usr/lib/systemd/systemd --log-target=console --show-status=no
}

boot() {
    local tries
    say "starting systemd"
    mkdir -p "$groups"
    mount -t cgroup2 cgroup2 "$groups"
    group=$(mktemp -d "$groups/penstock-check.XXXXXX")
    (
        echo 0 >"$group/cgroup.procs"
        exec unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup \
            bash -c "$(declare -f begin); begin $root" </dev/null >"$root.boot.log" 2>&1
    ) &
    starter=$!
    trap shut_down EXIT
    for tries in {1..60}; do
        sleep 0.5
        init=$(tr -d ' ' <"/proc/$starter/task/$starter/children") || die "systemd ended: see $root.boot.log"
        [ "$(booted systemctl is-system-running 2>/dev/null)" != running ] || return 0
    done
    booted systemctl --failed || true
    die "systemd does not come up: see $root.boot.log"
}

booted() {
    nsenter --target="$init" --all env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive "$@"
}

shut_down() {
    [ -z "$init" ] || kill -KILL "$init" || true
    wait "$starter" 2>/dev/null || true
    find "$group" -depth -type d -exec rmdir {} \;
}

# apt ACTION PACKAGE: in the booted root, which reaches no mirror.
apt() {
    say "apt-get $*"
    logged "$root.log" booted apt-get "$1" -q -y "$2"
}

messages() { booted /usr/lib/penstock/bin/python /trial/try_broker.py "$@"; }
property() { booted systemctl show --property "$1" --value penstock; }

# Active is what the service calls ready, by sd_notify.
is_active() {
    local tries
    for tries in {1..60}; do
        [ "$(property ActiveState)" != active ] || return 0
        sleep 0.5
    done
    booted journalctl --no-pager --unit penstock --lines 40 >&2
    die "the service is $(property ActiveState)"
}

check_service() {
    is_active
    messages publish "$MESSAGES"
    booted systemctl reload penstock
    booted systemctl kill --signal KILL penstock
    sleep 1
    is_active
    [ "$(property NRestarts)" = 1 ] || die "the service was not restarted"
    messages count "$MESSAGES"
}

check_upgrade() {
    local before
    echo PENSTOCK_LOG_LEVEL=debug >>"$root$SETTINGS"
    before=$(property MainPID)
    apt install "/trial/$next"
    is_active
    [ "$(property MainPID)" != "$before" ] || die "the old version still runs"
    grep -q '^PENSTOCK_LOG_LEVEL=debug$' "$root$SETTINGS" || die "a changed setting is lost"
    messages count "$MESSAGES"
    check_system
}

check_remove() {
    apt remove penstock
    [ "$(property ActiveState)" = inactive ] || die "the service is $(property ActiveState)"
    is_gone /usr/lib/penstock /usr/bin/penstock "$UNIT"
    [ -n "$(find "$root/var/lib/penstock" -type f)" ] || die "removing the package removed the messages"
    [ -e "$root$SETTINGS" ] || die "removing the package removed the settings"
    apt install "/trial/$next"
    is_active
    messages consume "$MESSAGES"
}

check_purge() {
    local left
    apt purge penstock
    is_gone /usr/lib/penstock /var/lib/penstock /var/log/penstock /etc/penstock "$WANTED"
    left=$(find "$root" -xdev -path "$root/trial" -prune -o -name '*penstock*' -print)
    [ -z "$left" ] || die "purging left: $left"
}

mkdir -p "$ROOTS"
build
lint
make_root
say "installing $package"
install_packages "$root" "/trial/$package"
check_system
boot
check_service
check_upgrade
check_remove
check_purge
say "the package passes, after $SECONDS s"
