#!/usr/bin/env bash
# Writes requirements.lock anew from pyproject.toml, and keeps the versions that still fit.
#
#   tools/lock.sh --upgrade    the newest versions that fit
set -euo pipefail
cd "$(dirname "$0")/.."

lock=requirements.lock
sed -n '/^requires = /p' pyproject.toml | grep -o '"[^"]*"' | tr -d '"' >build/build-system
cp "$lock" build/lock
.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-header --all-extras "$@" -o build/lock pyproject.toml build/build-system
{
    grep '^#' "$lock"
    sed -e 's/ (pyproject.toml)$//' -e 's|-r build/build-system|build-system|' build/lock
} >build/lock.new
mv build/lock.new "$lock"
