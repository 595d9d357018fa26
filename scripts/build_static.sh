#!/usr/bin/env bash
# cleaved as one static program: builds it, checks that it is static and below 60 MB, and runs it once.
#
#   scripts/build_static.sh                   for this machine
#   scripts/build_static.sh aarch64           for arm64, run under user-mode emulation; where the Rust target, a linker
#                                             or the emulator is missing, it says which, and ends without an error
#   scripts/build_static.sh x86_64 cleave     the program of hosts, of any size
#
# Its last line is read by build_packages.sh. cleaved alone is built with other features than the whole workspace, so
# the engine is compiled anew: minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

machine=${1:-$(uname -m)}
name=${2:-cleaved}
host_machine=$(uname -m)
case $name in
    cleaved) package=cleave-device bytes_max=60000000 ;;
    cleave) package=cleave bytes_max= ;;
    *) echo "no such program: $name; cleaved and cleave are known" >&2; exit 1 ;;
esac

skip() { echo "static $machine: not built: $*"; exit 0; }
fail() { echo "static $machine: $*" >&2; exit 1; }

case $machine in
    x86_64 | aarch64) ;;
    *) fail "no such machine; x86_64 and aarch64 are known" ;;
esac

# A target that the toolchain has; nothing is downloaded. musl is static by itself.
installed=$(rustup target list --installed 2>/dev/null || rustc -vV | sed -n 's/^host: //p')
target=
for libc in musl gnu; do
    if grep -qx "$machine-unknown-linux-$libc" <<<"$installed"; then
        target=$machine-unknown-linux-$libc
        break
    fi
done
[[ -n $target ]] \
    || skip "the toolchain has no target $machine-unknown-linux-musl or -gnu (it has: ${installed//$'\n'/, })"

# What links it, and compiles the few C files of its cryptography.
runner=()
if [[ $machine != "$host_machine" ]]; then
    linker=$(command -v "$machine-linux-gnu-gcc" || command -v "$machine-linux-musl-gcc" || true)
    [[ -n $linker ]] || skip "there is no $machine-linux-gnu-gcc to link with"
    runner=("$(command -v "qemu-$machine-static" || command -v "qemu-$machine" || true)")
    [[ -n ${runner[0]} ]] || skip "there is no qemu-$machine to run it with"
    of_target=${target//-/_}
    export "CC_$of_target=$linker" "CARGO_TARGET_${of_target^^}_LINKER=$linker"
fi

# With --target the flags are the program's alone, not those of macros and build scripts.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" \
    cargo build --locked --profile dist --target "$target" -p "$package" --bin "$name"
program=${CARGO_TARGET_DIR:-target}/$target/dist/$name

if readelf -l "$program" | grep -q INTERP; then
    fail "$program asks for a dynamic loader"
fi
bytes=$(stat -c %s "$program")
[[ -z $bytes_max ]] || ((bytes < bytes_max)) || fail "$program has $bytes bytes, and may have $bytes_max"
version=$("${runner[@]}" "$program" --version)
[[ $version == "$name "* ]] || fail "$program says '$version' to --version"
echo "static $machine: $program, $bytes bytes, runs: $version"
