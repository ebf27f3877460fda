#!/bin/sh
# Every other supported Python that this machine has gets a virtual environment beside .venv, made once; the extension
# is built in place for it. Nothing else may run meanwhile.
set -eu
cd "$(dirname "$0")/.."
for version in 3.11 3.12 3.13 3.14 3.15; do
    if ! found=$("$PYTHON_VENV" tests/pythons.py "$version"); then
        echo "Python $version: not here, its tests are left out"
        continue
    fi
    if "$PYTHON_VENV" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')"; then
        continue # .venv itself, which runs everything
    fi
    venv=.venv-$version
    if [ ! -e "$venv/.made" ]; then
        "$found" -m venv "$venv"
        "$venv/bin/python" -m pip install -q "setuptools>=77" "rich>=13" "cloudpickle>=3" "jinja2>=3.1" "pytest>=8" "hypothesis>=6"
        touch "$venv/.made"
    fi
    CUPTIMEM_WERROR=1 "$venv/bin/python" setup.py -q build_ext --inplace
done
