# Debian roots in which packages are built and tried: made by debootstrap, entered by chroot.
#
# Sourced by the check_*.sh beside it, in the directory of the repository.  Roots and downloaded packages
# stay in build/roots; `rm -rf build/roots` begins anew.  A script that begins with `in_own_namespaces`
# leaves no mount and no process, whatever ends it.
#
#   PENSTOCK_DEBIAN_MIRROR=URL   the mirror (default: that of this machine's apt)

ROOTS=build/roots
# What this machine trusts, and where a root has it: besides its own, for pip.
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
CERTIFICATES_INSIDE=/etc/machine-certificates.crt

say() { printf '==> %s\n' "$*"; }

die() {
    printf 'failed: %s\n' "$*" >&2
    exit 1
}

# Starts the script anew in its own namespaces; goes on there.
in_own_namespaces() {
    if [ "${PENSTOCK_OWN_NAMESPACES:-}" = 1 ]; then
        trap 'exit 130' INT TERM
        return
    fi
    [ "$(id -u)" = 0 ] || die "root is needed, for chroot and namespaces"
    command -v debootstrap >/dev/null || die "debootstrap is missing (apt-get install debootstrap)"
    PENSTOCK_OWN_NAMESPACES=1 exec unshare --mount --pid --fork --kill-child --mount-proc "$@"
}

debian_mirror() {
    if [ -n "${PENSTOCK_DEBIAN_MIRROR:-}" ]; then
        echo "$PENSTOCK_DEBIAN_MIRROR"
        return
    fi
    local mirrors
    mirrors=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian')
    [ -n "$mirrors" ] || die "apt knows no Debian mirror (apt-get update, or PENSTOCK_DEBIAN_MIRROR=URL)"
    echo "${mirrors%%$'\n'*}"
}

# base_root SUITE: the root of a minimal Debian, made if it is not there.
base_root() {
    local suite=$1 root=$ROOTS/$1-base script=/usr/share/debootstrap/scripts/$1
    [ ! -d "$root" ] || return 0
    say "$suite: making a minimal root"
    [ -e "$script" ] || script=${script%/*}/sid
    remove_root "$root.part"
    mkdir -p "$root.part" "$ROOTS/packages"
    debootstrap --variant=minbase --cache-dir="$PWD/$ROOTS/packages" \
        "$suite" "$root.part" "$(debian_mirror)" "$script" >"$root.log" 2>&1 \
        || { tail -n 20 "$root.log" >&2; die "debootstrap $suite"; }
    mv "$root.part" "$root"
}

# fresh_root SUITE NAME: a copy of the base root, in the place of an older one.
fresh_root() {
    local root=$ROOTS/$1-$2
    base_root "$1"
    remove_root "$root"
    cp -a --reflink=auto "$ROOTS/$1-base" "$root"
}

# kept_root SUITE NAME PACKAGE...: a root with these packages; one that has them is taken as it is.
kept_root() {
    local suite=$1 root=$ROOTS/$1-$2
    local stamp=$root/.packages
    shift 2
    if [ "$(cat "$stamp" 2>/dev/null)" = "$*" ]; then
        attach "$root"
        return
    fi
    fresh_root "$suite" "${root##*/"$suite"-}"
    attach "$root"
    say "$suite: installing $*"
    install_packages "$root" "$@"
    echo "$*" >"$stamp"
}

remove_root() { rm -rf --one-file-system "$1"; }

# attach ROOT: mounts what programs expect, and brings how this machine reaches mirror and index.
attach() {
    local root=$1 line
    mount -t proc proc "$root/proc"
    mkdir -p "$root/dev/pts" "$root/dev/shm" "$ROOTS/packages" "$ROOTS/pip" "$root/var/cache/pip"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount --bind "$ROOTS/packages" "$root/var/cache/apt/archives"
    mount --bind "$ROOTS/pip" "$root/var/cache/pip"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    printf '127.0.0.1 localhost %s\n' "$(uname -n)" >"$root/etc/hosts"
    [ ! -e "$CERTIFICATES" ] || install -m 0644 "$CERTIFICATES" "$root$CERTIFICATES_INSIDE"
    apt-config dump --no-empty Acquire | grep -iE '^Acquire::(https?|retries|check-)' \
        >"$root/etc/apt/apt.conf.d/99machine" || true
    # A root is not worth waiting for the disk.
    echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/fast"
}

detach() {
    local place
    for place in var/cache/pip var/cache/apt/archives dev/shm dev/pts proc; do umount "$1/$place"; done
}

# own_network: makes a network for `alone`, with a loopback device and nothing else.
own_network() {
    : >"$ROOTS/network"
    unshare --net="$ROOTS/network" ip link set lo up
}

# alone ROOT COMMAND...: as inside, in that network.
alone() {
    local ENTER=(nsenter --net="$ROOTS/network")
    inside "$@"
}

# inside ROOT COMMAND...: runs it in the root, with a clean environment but for proxies and pip's index.
# With EXEC=exec in the place of this shell.
inside() {
    local root=$1 name kept=()
    shift
    for name in http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_DEFAULT_TIMEOUT; do
        [ -z "${!name:-}" ] || kept+=("$name=${!name}")
    done
    [ ! -e "$CERTIFICATES" ] || kept+=("PIP_CERT=$CERTIFICATES_INSIDE")
    ${EXEC:-} ${ENTER+"${ENTER[@]}"} env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CACHE_DIR=/var/cache/pip \
        PIP_ROOT_USER_ACTION=ignore "${kept[@]}" chroot "$root" "$@"
}

# logged FILE COMMAND...: its output goes to the file, and is shown when it fails.
logged() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 || { tail -n 60 "$log" >&2; die "$* (all of it: $log)"; }
}

# install_packages ROOT PACKAGE...: also paths of .deb files, as the root sees them.
install_packages() {
    local root=$1
    shift
    logged "$root.log" inside "$root" sh -c 'apt-get update -q && exec apt-get install -q -y \
        --no-install-recommends -o APT::Keep-Downloaded-Packages=true "$@"' sh "$@"
}
