#!/usr/bin/env bash
# What is handed out, into dist/: the wheel of the Python package, and the programs, stripped.
#
#   scripts/build_python.sh            the wheel and the programs
#   scripts/build_python.sh wheel      the wheel alone
#
# maturin comes with pip, into target/maturin, if it is not there. The wheel is for any Python from 3.10 on.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p dist
if ! command -v maturin >/dev/null; then
    [[ -x target/maturin/bin/maturin ]] || {
        python3 -m venv target/maturin
        target/maturin/bin/pip install --quiet 'maturin>=1.9,<2'
    }
    PATH=$PWD/target/maturin/bin:$PATH
fi
rm -f dist/cleave-*.whl
maturin build --profile dist --locked --out dist --compatibility linux
if [[ ${1:-} != wheel ]]; then
    cargo build --locked --profile dist -p cleave --bin cleave -p cleave-device --bin cleaved
    install "${CARGO_TARGET_DIR:-target}"/dist/{cleave,cleaved} dist/
fi
ls -l dist
