#!/bin/sh
# A Python environment with pinned packages. Does nothing when it is there and the list has not changed.
# Usage: environment.sh FOLDER REQUIREMENTS [PIP OPTION...]; PYTHON names the interpreter.
set -eu

folder=$1
list=$2
shift 2
python=${PYTHON:-/usr/bin/python3}

cmp -s "$list" "$folder/installed" && exit 0

missing=
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing=python3-venv
# A library that vLLM's own links to.
if grep -q '^vllm' "$list" && ! ldconfig -p | grep -q 'libnuma\.so\.1'; then missing="$missing libnuma1"; fi
if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "missing packages: $missing" >&2
        exit 1
    fi
    apt-get update -q >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing >&2
fi

rm -rf "$folder"
"$python" -m venv "$folder"
echo "installing $list into $folder" >&2
"$folder/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$@" -r "$list" >&2
cp "$list" "$folder/installed"
