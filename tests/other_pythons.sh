#!/bin/sh
# The tests that need no PyTorch, with every other supported Python that this machine has. Each gets a virtual
# environment beside .venv, made once; the extension is built in place for it.
set -eu
cd "$(dirname "$0")/.."
for minor in 11 12 13; do
    found=
    for candidate in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python; do
        # An interpreter counts if it starts (a shim may not), is that version, and has its headers.
        if "$candidate" -c "
import os, sys, sysconfig
ok = sys.version_info[:2] == (3, $minor) and os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))
sys.exit(not ok)" 2>/dev/null; then
            found=$candidate
            break
        fi
    done
    if [ -z "$found" ]; then
        echo "Python 3.$minor: not here, left out"
        continue
    fi
    if "$PYTHON_VENV" -c "import sys; sys.exit(sys.version_info[:2] != (3, $minor))"; then
        continue # .venv itself, which runs everything
    fi
    venv=.venv-3.$minor
    if [ ! -e "$venv/.made" ]; then
        "$found" -m venv "$venv"
        "$venv/bin/python" -m pip install -q "setuptools>=77" "rich>=13" "pytest>=8" "hypothesis>=6"
        touch "$venv/.made"
    fi
    CUPTIMEM_WERROR=1 "$venv/bin/python" setup.py -q build_ext --inplace
    echo "Python 3.$minor, without PyTorch:"
    "$venv/bin/python" -m pytest -q -m "not torch" --ignore=tests/sources --ignore=tests/truth "$@"
done
