#!/usr/bin/env bash
# Makes .venv ready: the program (default), or kinds of what its tests need.
#
#   tools/setup.sh                   the program, interpreted, and what compiles it
#   tools/setup.sh spark             what pipelines need, and a Java if this machine has none
#   tools/setup.sh extras test-core release    what these extras of pyproject.toml need
#   tools/setup.sh older-sparks  the PySparks of tests/spark/older-sparks.txt, below build/spark
#   tools/setup.sh pytest ARGS       what pytest needs for ARGS: all kinds, or those of its paths
#
# Quick when nothing changed: each part leaves a stamp in .venv that is compared with
# pyproject.toml and requirements.lock.  PYTHON=python3.12 names the interpreter to use (default: the
# first that is new enough).
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

pip_install() { quietly "$venv/bin/python" -m pip install --quiet "$@"; }

# Installs what the parts of pyproject.toml need, in the versions and with the checksums of
# requirements.lock.
install_parts() {
    "$venv/bin/python" tools/requirements.py "$@" >build/requirements.txt
    pip_install "${options[@]}" --require-hashes --no-deps --requirement build/requirements.txt
}

# Does the part `$1` have to be installed (again)?
lacks() {
    local stamp=$venv/.$1
    [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ] || [ requirements.lock -nt "$stamp" ]
}

install_program() {
    make_venv
    lacks program || return 0
    say "setup: installing penstock and what it needs"
    # Bytecode is written when a module is first imported, not for thousands that never are.
    local options=(--no-compile)
    install_parts program build
    PENSTOCK_NO_COMPILE=1 pip_install --no-deps --no-build-isolation --editable .
    touch "$venv/.program"
}

has_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    "$java" -version 2>&1 | grep -Eq '"(1[7-9]|[2-9][0-9])'
}

# Installs the extras that are named and not there yet.
install_extras() {
    local extra lacking=()
    for extra in "$@"; do
        ! lacks "$extra" || lacking+=("$extra")
    done
    [ "${#lacking[@]}" -gt 0 ] || return 0
    say "setup: installing ${lacking[*]}$([[ ${lacking[*]} != *spark* ]] || echo " (some hundred MB: minutes)")"
    # With bytecode: the compiler's warnings about other projects' files would fail our tests.
    local options=(--compile)
    install_parts "${lacking[@]}"
    for extra in "${lacking[@]}"; do touch "$venv/.$extra"; done
}

# PySpark is large; this takes a while once.
install_spark() {
    if has_java; then install_extras spark; else install_extras spark-jre; fi
}

# Each in a directory of its own: only one can be in .venv.
install_older_sparks() {
    local line place
    while read -r line; do
        place=build/spark/$(sed -E 's/.*==([^ ]+).*/\1/' <<<"$line")
        [ ! -d "$place" ] || continue
        say "setup: installing ${line%% *} beside the other (some hundred MB)"
        echo "$line" >build/older-spark.txt
        rm -rf "$place.part"
        pip_install --no-compile --require-hashes --no-deps --target "$place.part" \
            --requirement build/older-spark.txt
        mv "$place.part" "$place"
    done <tests/spark/older-sparks.txt
}

# The kinds of the paths among the arguments of pytest; all kinds when it is given no path.
kinds_of() {
    local word kinds=()
    for word in "$@"; do
        case "$word" in
            tests | tests/) kinds+=(all) ;;
            tests/tidy*) kinds+=(test-lint) ;;
            tests/interop*) kinds+=(test-clients) ;;
            tests/spark*) kinds+=(test-spark) ;;
            tests/ui*) kinds+=(test-clients test-ui) ;;
            tests/*) kinds+=(test-core) ;;
        esac
    done
    case " ${kinds[*]:-all} " in *" all "*) kinds=(test-lint test-clients test-spark test-ui) ;; esac
    echo "${kinds[@]}"
}

install_program
case "${1:-}" in
    "") ;;
    spark) install_spark ;;
    older-sparks) install_older_sparks ;;
    extras) install_extras "${@:2}" ;;
    pytest) install_extras test-core $(kinds_of "${@:2}") ;;
    *) die "unknown step: $1" ;;
esac
