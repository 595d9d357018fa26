# Short names for people; .ci/run and the README call the same commands.

# What takes seconds before a commit.
check:
    cargo fmt --check
    cargo clippy --workspace --all-targets -- -D warnings

test:
    cargo test --workspace

# One test by name, in one crate: just one cleave-store page
one crate name:
    cargo test -p {{crate}} {{name}}

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Seeds of the simulation: just sim 17, or CLEAVE_SIM_SEEDS=10000 just sim
sim seed="":
    {{ if seed == "" { "" } else { "CLEAVE_SIM_SEED=" + seed } }} cargo test --workspace --test sim

demo *args:
    cargo run --release -- demo {{args}}

# Compare results with DuckDB on the same generated data: just peers 0.002
peers scale="0.002":
    scripts/compare_peers.sh {{scale}}

# The hybridNDP paper's experiments, as root: just experiments matrix --only 8c
experiments *args:
    scripts/bench_ndp.py {{args}}

# Everything that a change must pass.
ci:
    .ci/run
