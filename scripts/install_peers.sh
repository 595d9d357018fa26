#!/usr/bin/env bash
# Installs the systems that Cleave is compared with; they are never compiled in.
#   scripts/install_peers.sh duckdb        into target/peers/python (needs python3 with venv)
#   scripts/install_peers.sh postgresql    with apt-get (needs root or sudo)
#   scripts/install_peers.sh sqlite        likewise
set -euo pipefail
cd "$(dirname "$0")/.."

python_environment=target/peers/python
duckdb_version=2.0.0

install_duckdb() {
    if [[ -x $python_environment/bin/python ]] && "$python_environment/bin/python" -c 'import duckdb' 2>/dev/null; then
        return
    fi
    mkdir -p target/peers
    python3 -m venv "$python_environment"
    "$python_environment/bin/pip" install --quiet --disable-pip-version-check "duckdb==$duckdb_version"
    "$python_environment/bin/python" -c 'import duckdb; print("installed DuckDB", duckdb.__version__)'
}

# Another step of CI may be reading the lists; nobody waits for that lock by himself.
update_lists() {
    local try
    for try in 1 2 3 4; do
        "$@" apt-get update -qq && return
        sleep $((try * 5))
    done
    return 1
}

install_postgresql() {
    command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null && return
    local as_root=()
    [[ $EUID -eq 0 ]] || as_root=(sudo)
    update_lists "${as_root[@]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq postgresql
}

install_sqlite() {
    command -v sqlite3 >/dev/null && return
    local as_root=()
    [[ $EUID -eq 0 ]] || as_root=(sudo)
    update_lists "${as_root[@]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq sqlite3
}

if (($# == 0)); then
    set -- duckdb
fi
for peer in "$@"; do
    case $peer in
        duckdb) install_duckdb ;;
        postgresql) install_postgresql ;;
        sqlite) install_sqlite ;;
        *) echo "unknown peer '$peer': duckdb, postgresql or sqlite" >&2; exit 1 ;;
    esac
done
