#!/bin/sh
# Creates a virtual environment: make_venv.sh DIRECTORY, with a Python of 3.11 or newer ($PYTHON, or the best one on the machine).
# Prints one line and fails if the machine has none, or if Debian's python3-venv is missing and cannot be installed.
#
# The system's Python comes before others on the PATH. Distributions build their Python with profile-guided optimisation, version
# managers mostly do not, and the difference is a third of the time of every test. A Python without its venv module is the last
# choice.
set -eu

directory=$1

if [ -L "$directory" ]; then
    echo "$directory is a link to another checkout's environment, which would be emptied; nothing was done: remove the link" >&2
    exit 1
fi

new_enough() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

has_venv() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

find_python() {
    without_venv=
    for candidate in ${PYTHON:-/usr/bin/python3 /usr/bin/python3.11 python3.11 python3 python3.12 python3.13 python3.14}; do
        if new_enough "$candidate"; then
            if has_venv "$candidate"; then
                echo "$candidate"
                return
            fi
            without_venv=${without_venv:-$candidate}
        fi
    done
    echo "$without_venv"
}

python=$(find_python)
if [ -z "$python" ]; then
    found=$(python3 --version 2>/dev/null || echo "no python3")
    echo "metaquorum needs Python 3.11 or newer; found: ${PYTHON:-$found}. Name another with PYTHON=/path/to/python3" >&2
    exit 1
fi

if ! has_venv "$python"; then
    version=$("$python" -c 'import sys; print(f"{sys.version_info.major}.{sys.version_info.minor}")')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing python$version-venv" >&2
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "python$version-venv"; } >&2 || true
    fi
    if ! has_venv "$python"; then
        echo "the venv module of $python is missing: install it with  apt-get install python$version-venv" >&2
        exit 1
    fi
fi

"$python" -m venv --clear "$directory"  # --clear: files of another Python must not be mixed in
