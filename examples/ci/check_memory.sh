#!/bin/sh
# What a pull request must pass: limits of the markers, and no peak or leak above the committed baseline.
#
#     sh check_memory.sh            compare with .cuptimem/*/main.json
#     sh check_memory.sh --save     save that baseline: after a change that is meant, commit what it writes
#
# PYTHON is the interpreter with torch, pytest and cuptimem. The figures go to memory.json.
set -eu
cd "$(dirname "$0")"
export OMP_NUM_THREADS=1
# Runners differ in their instruction sets, and a baseline is of one: let PyTorch use what all of them have.
export ATEN_CPU_CAPABILITY=avx2

case "${1:-}" in
--save) exec "${PYTHON:-python}" -m pytest --cuptimem-save=main ;;
"") ;;
*) echo "usage: check_memory.sh [--save]" >&2; exit 2 ;;
esac

exec "${PYTHON:-python}" -m pytest --cuptimem --cuptimem-json=memory.json \
    --cuptimem-compare=main --cuptimem-compare-fail=peak:5%,leak:0B
