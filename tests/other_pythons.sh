#!/bin/sh
# The tests that need no PyTorch, with every other supported Python that this machine has. Each gets a virtual
# environment beside .venv, made once; the extension is built in place for it.
#   other_pythons.sh prepare      makes what is missing: nothing else may run meanwhile
#   other_pythons.sh test ARGS    runs the tests
set -eu
cd "$(dirname "$0")/.."
what=$1
shift
for version in 3.11 3.12 3.13; do
    if ! found=$("$PYTHON_VENV" tests/pythons.py "$version"); then
        [ "$what" = prepare ] || echo "Python $version: not here, left out"
        continue
    fi
    if "$PYTHON_VENV" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')"; then
        continue # .venv itself, which runs everything
    fi
    venv=.venv-$version
    if [ "$what" = prepare ]; then
        if [ ! -e "$venv/.made" ]; then
            "$found" -m venv "$venv"
            "$venv/bin/python" -m pip install -q "setuptools>=77" "rich>=13" "cloudpickle>=3" "pytest>=8" "hypothesis>=6"
            touch "$venv/.made"
        fi
        CUPTIMEM_WERROR=1 "$venv/bin/python" setup.py -q build_ext --inplace
        continue
    fi
    echo "Python $version, without PyTorch:"
    "$venv/bin/python" -m pytest -q -m "not torch and not cuda_torch" --ignore=tests/sources --ignore=tests/truth --ignore=tests/foreign "$@" || {
        code=$?
        [ "$code" = 5 ] && [ $# -gt 0 ] || exit "$code" # 5: the arguments choose none of these
    }
done
