#!/usr/bin/env bash
# Generates a small IMDb-like data set as CSV, loads it into Cleave and into DuckDB, runs every query
# in both, and compares the rows: scripts/compare_peers.sh [SCALE]
set -euo pipefail
cd "$(dirname "$0")/.."

scale=${1:-0.002}
work=target/peers/imdb-$scale
cleave=${CLEAVE_BINARY:-${CARGO_TARGET_DIR:-target}/debug/cleave}

scripts/install_peers.sh duckdb
[[ -x $cleave ]] || cargo build --package cleave

rm -rf "$work"
mkdir -p "$work"
"$cleave" generate imdb --scale "$scale" --out "$work/csv"

folders=(crates/cleave/src/demo/queries)
if [[ -n ${CLEAVE_DATA:-} ]]; then
    folders+=("$CLEAVE_DATA/job/queries")
fi
target/peers/python/bin/python scripts/compare_duckdb.py \
    --cleave "$cleave" --csv "$work/csv" --db "$work/db" \
    --settings "split=host" --settings "split=h0" --settings "split=ndp" --settings "split=auto" \
    --settings "stack=blk" \
    "${folders[@]}"
