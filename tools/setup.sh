#!/usr/bin/env bash
# Makes .venv ready: the program (default), or the program and what its tests need (`test`).
#
# Quick when nothing changed: each step leaves a stamp in .venv that the Makefile compares with
# the files the step depends on.  Speaks up when something is missing and says how to get it.
#
#   PYTHON=python3.12        the interpreter to use (default: the first that is new enough)
#   PENSTOCK_NO_COMPILE=1    do not compile the hot path
#   PENSTOCK_REQUIRE_COMPILED=1  fail when it cannot be compiled
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
log=build/setup.log
mkdir -p build

say() { printf "%s\n" "$@"; }

die() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

# Runs a command; its output matters only when it fails.
quietly() {
    if ! "$@" >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        die "this failed: $*"
    fi
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    die "${PYTHON:-no python3 here} is not Python 3.11 or newer." \
        "On Debian 12: apt-get install python3 python3-venv python3-dev gcc" \
        "Elsewhere: install Python and say PYTHON=/path/to/python3.11 make setup"
}

make_venv() {
    if [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python"; then
        return
    fi
    local python
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null \
        || die "$python cannot make virtual environments. On Debian 12: apt-get install python3-venv"
    say "setup: making $venv with $("$python" --version)"
    quietly "$python" -m venv --clear "$venv"
}

# What pyproject.toml needs to build is installed beside the program, so that a change of a hot
# file costs one compilation and no fresh build environment.
install_program() {
    say "setup: installing penstock and what it needs"
    local needs
    needs=$("$venv/bin/python" -c '
import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")')
    mapfile -t needs <<<"$needs"
    quietly "$venv/bin/python" -m pip install --quiet "${needs[@]}"
    PENSTOCK_NO_COMPILE=1 quietly "$venv/bin/python" -m pip install --quiet \
        --no-build-isolation --editable .
}

install_test_extra() {
    say "setup: installing what the tests need (PySpark is large; this takes a while once)"
    PENSTOCK_NO_COMPILE=1 quietly "$venv/bin/python" -m pip install --quiet \
        --no-build-isolation --editable '.[test]'
}

# The old binaries go first: one that is older than its source must never run in its place.
compile_hot_path() {
    find src -name '*.so' -delete
    if [ "${PENSTOCK_NO_COMPILE:-}" = 1 ]; then
        return
    fi
    say "setup: compiling the hot path"
    "$venv/bin/python" setup.py --quiet build_ext --inplace >"$log" 2>&1 </dev/null || true
    # What did not change is copied from build/ with its old date; the code in it is new.
    find src -name '*.so' -exec touch {} +
}

# Which files of the hot list run interpreted; empty when all are compiled.
interpreted_files() {
    local file
    for file in $(hot_list); do
        compgen -G "${file%.py}.*.so" >/dev/null || echo "$file"
    done
}

hot_list() { sed -n 's/^ *"\(src\/.*\.py\)",$/\1/p' setup.py; }

report() {
    local left
    left=$(interpreted_files)
    if [ -z "$left" ]; then
        return
    fi
    if [ "${PENSTOCK_REQUIRE_COMPILED:-}" = 1 ]; then
        cat "$log" >&2
        die "PENSTOCK_REQUIRE_COMPILED=1, but these are not compiled:" "$left"
    fi
    say "" "WARNING: the hot path is not compiled; the broker runs interpreted, several times slower."
    if [ "${PENSTOCK_NO_COMPILE:-}" = 1 ]; then
        say "         (PENSTOCK_NO_COMPILE=1 asks for that.)"
    elif ! command -v cc >/dev/null 2>&1; then
        say "         No C compiler found. On Debian 12: apt-get install gcc python3-dev" \
            "         and then: make clean setup"
    else
        tail -n 5 "$log" | sed 's/^/         | /'
        say "         On Debian 12 the headers of Python may be missing: apt-get install python3-dev" \
            "         and then: make clean setup"
    fi
}

case "${1:-program}" in
    program)
        make_venv
        install_program
        touch "$venv/.installed"
        ;;
    compile)
        compile_hot_path
        report
        touch "$venv/.compiled"
        ;;
    test)
        install_test_extra
        touch "$venv/.test-extra"
        ;;
    *) die "unknown step: $1" ;;
esac
