#!/usr/bin/env bash
# Packages of the static programs, in dist/: a Debian package and a tarball for each of `cleave` and `cleaved`, and
# SHA256SUMS of all that lies there.
#
#   scripts/build_packages.sh              for this machine
#   scripts/build_packages.sh aarch64      for arm64; where that cannot be built here, says so and makes nothing
#   scripts/build_packages.sh --self-test  packages stand-in programs and looks at what comes out: seconds
#
# The programs are those of build_static.sh. Man pages and completions are made by the program `cleave` itself. Two runs
# of one commit make the same bytes. What is packaged besides lies in packaging/.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "packages: $*" >&2; exit 1; }

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
[[ -n $version ]] || fail "Cargo.toml has no version"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The lines of `Description:` in Debian's form: a summary, and below it what it is for.
describe() {
    case $1 in
        cleave)
            echo "Description: SQL database whose storage computes"
            echo " A transactional SQL database that PostgreSQL's clients can use. Parts of a query run on the"
            echo " storage devices that hold the rows."
            ;;
        cleaved)
            echo "Description: storage device of Cleave, a SQL database"
            echo " Serves the blocks of its media to a host that runs cleave, and runs fragments of queries."
            ;;
    esac
}

# Lays the files of package $1 into folder $2 as they are installed: program $3, and what `cleave` ($4…) prints.
lay_files() {
    local package=$1 root=$2 program=$3 page shell file
    local -A completions=(
        [bash]=usr/share/bash-completion/completions/$package
        [zsh]=usr/share/zsh/vendor-completions/_$package
        [fish]=usr/share/fish/vendor_completions.d/$package.fish
    )
    shift 3
    umask 022
    install -D -m 0755 "$program" "$root/usr/bin/$package"
    "$@" man --out "$work/man"
    for page in "$work"/man/*; do
        file=${page##*/}
        # cleave.1 and cleave-sql.1 are cleave's, cleaved.8 is cleaved's.
        [[ $file == "$package".* || $file == "$package"-* ]] || continue
        mkdir -p "$root/usr/share/man/man${file##*.}"
        gzip -9n <"$page" >"$root/usr/share/man/man${file##*.}/$file.gz"
    done
    for shell in "${!completions[@]}"; do
        mkdir -p "$(dirname "$root/${completions[$shell]}")"
        "$@" completions "$shell" "$package" >"$root/${completions[$shell]}"
    done
    mkdir -p "$root/usr/share/doc/$package" "$root/etc/cleave"
    install -m 0644 packaging/debian/copyright "$root/usr/share/doc/$package/copyright"
    third_party "$package" | gzip -9n >"$root/usr/share/doc/$package/third-party.txt.gz"
    gzip -9n <CHANGELOG.md >"$root/usr/share/doc/$package/changelog.gz"
    # The programs are static on purpose: a package needs no library.
    mkdir -p "$root/usr/share/lintian/overrides"
    echo "$package: statically-linked-binary [usr/bin/$package]" >"$root/usr/share/lintian/overrides/$package"
    for file in packaging/systemd/"$package"{,@}.*; do
        [[ ! -e $file ]] || install -D -m 0644 "$file" "$root/usr/lib/systemd/system/${file##*/}"
    done
    # The options that the units read: as the program knows them, and of a first device.
    if [[ $package == cleave ]]; then
        "$@" config sample >"$root/etc/cleave/cleave.toml"
    else
        sed 's/nas/main/g' packaging/cleaved.toml >"$root/etc/cleave/cleaved-main.toml"
    fi
    # What a unit reads must be there; a template names files of its instances.
    for file in $(grep -rh '^[A-Z]' "$root/usr/lib/systemd" 2>/dev/null | grep -oE '/etc/cleave/[A-Za-z0-9._%-]+'); do
        [[ $file == *%* || -e $root$file ]] || fail "a unit of $package names $file, which is not packaged"
    done
}

# Libraries and licences of what package $1 links.
third_party() {
    if [[ -n ${stand_in:-} ]]; then
        echo "stand-in"
        return
    fi
    local crate=$1
    [[ $crate == cleave ]] || crate=cleave-device
    cargo metadata --locked --format-version 1 --filter-platform "$target" | scripts/third_party.py "$crate"
}

# The Debian package of the files in $2, and a tarball of them, into folder $4; machine $3.
pack() {
    local package=$1 root=$2 machine=$3 out=$4 architecture script name units
    case $package in
        cleave) units='cleave.service' ;;
        cleaved) units='cleaved@*.service' ;;
    esac
    case $machine in
        x86_64) architecture=amd64 ;;
        aarch64) architecture=arm64 ;;
    esac
    mkdir -p "$out"
    name=$package-$version-$machine-linux
    # Paths below a folder of the package's name, which can be unpacked anywhere.
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --transform="s,^\.,$name," -C "$root" -cf - . | gzip -9n >"$out/$name.tar.gz"

    mkdir -p "$root/DEBIAN"
    {
        echo "Package: $package"
        echo "Version: $version"
        echo "Architecture: $architecture"
        echo "Maintainer: The Cleave developers <cleave@invalid>"
        echo "Section: database"
        echo "Priority: optional"
        echo "Depends: adduser"
        echo "Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)"
        describe "$package"
    } >"$root/DEBIAN/control"
    (cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$root/DEBIAN/conffiles"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    for script in postinst prerm postrm; do
        sed -e "s/@PACKAGE@/$package/g" -e "s/@UNITS@/$units/g" "packaging/debian/$script" >"$root/DEBIAN/$script"
        chmod 0755 "$root/DEBIAN/$script"
    done
    find "$root" -type d -exec chmod 0755 {} +
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/${package}_${version}_$architecture.deb" >/dev/null
    echo "packages: $out/${package}_${version}_$architecture.deb, $name.tar.gz"
}

sum_up() {
    (cd "$1" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum >SHA256SUMS)
}

# Both packages for machine $1 from the programs $2 (cleave) and $3 (cleaved) into $4; the rest runs `cleave`.
build() {
    local machine=$1 cleave=$2 cleaved=$3 out=$4
    shift 4
    lay_files cleave "$work/cleave" "$cleave" "$@"
    lay_files cleaved "$work/cleaved" "$cleaved" "$@"
    pack cleave "$work/cleave" "$machine" "$out"
    pack cleaved "$work/cleaved" "$machine" "$out"
    sum_up "$out"
}

# What the packages must hold, with programs that only print.
self_test() {
    local stand_in=yes out=$work/dist file deb listed unit script
    cat >"$work/program" <<'PROGRAM'
#!/bin/sh
case $1 in
    man) mkdir -p "$3"; for page in cleave.1 cleave-sql.1 cleaved.8; do echo ".TH $page" >"$3/$page"; done ;;
    completions) echo "# $2 completes $3" ;;
    config) echo '# db = "/var/lib/cleave/db"' ;;
esac
PROGRAM
    chmod +x "$work/program"
    build x86_64 "$work/program" "$work/program" "$out" "$work/program"
    expect() { grep -qE "$1" <<<"$2" || fail "self-test: there is no '$1' in: $2"; }
    for file in cleave cleaved; do
        deb=$out/${file}_${version}_amd64.deb
        listed=$(dpkg-deb --contents "$deb")
        expect "^-rwxr-xr-x root/root .* ./usr/bin/$file\$" "$listed"
        expect "./usr/share/bash-completion/completions/$file\$" "$listed"
        expect "./usr/share/zsh/vendor-completions/_$file\$" "$listed"
        expect "./usr/share/fish/vendor_completions.d/$file.fish\$" "$listed"
        expect "./usr/share/doc/$file/copyright\$" "$listed"
        expect "./usr/share/doc/$file/changelog.gz\$" "$listed"
        for unit in packaging/systemd/"$file"{,@}.service; do
            [[ ! -e $unit ]] || expect "./usr/lib/systemd/system/${unit##*/}\$" "$listed"
        done
        listed=$(dpkg-deb --info "$deb")
        expect "Package: $file\$" "$listed"
        expect "Version: $version\$" "$listed"
        expect 'Architecture: amd64$' "$listed"
        for script in postinst prerm postrm; do
            dpkg-deb --ctrl-tarfile "$deb" | tar -xO "./$script" >"$work/script"
            sh -n "$work/script" || fail "self-test: $script of $file cannot be read"
            ! grep -qE '@[A-Z]+@' "$work/script" || fail "self-test: $script of $file has an open place"
        done
        ! grep -E 'rm -r|deluser|userdel' "$work/script" || fail "self-test: purging $file removes data"
        expect "$file-$version-x86_64-linux/usr/bin/$file\$" \
            "$(tar -tzf "$out/$file-$version-x86_64-linux.tar.gz")"
    done
    listed=$(dpkg-deb --contents "$out/cleave_${version}_amd64.deb")
    expect './usr/share/man/man1/cleave-sql.1.gz$' "$listed"
    [[ $listed != *cleaved.8* ]] || fail "self-test: cleave has the page of cleaved"
    expect './usr/share/man/man8/cleaved.8.gz$' "$(dpkg-deb --contents "$out/cleaved_${version}_amd64.deb")"
    expect '/etc/cleave/cleave.toml' "$(dpkg-deb --info "$out/cleave_${version}_amd64.deb" conffiles)"
    expect '/etc/cleave/cleaved-main.toml' "$(dpkg-deb --info "$out/cleaved_${version}_amd64.deb" conffiles)"
    (cd "$out" && sha256sum --quiet --check SHA256SUMS) || fail "self-test: sums differ"
    [[ $(wc -l <"$out/SHA256SUMS") == 4 ]] || fail "self-test: not four files have sums"

    # Once more, the same bytes.
    mv "$out" "$work/first"
    rm -rf "$work/cleave" "$work/cleaved"
    build x86_64 "$work/program" "$work/program" "$out" "$work/program"
    cmp "$work/first/SHA256SUMS" "$out/SHA256SUMS" || fail "self-test: two runs made different bytes"
    echo "packages: self-test passed"
}

command -v dpkg-deb >/dev/null || fail "dpkg-deb is needed"
if [[ ${1:-} == --self-test ]]; then
    self_test
    exit
fi

machine=${1:-$(uname -m)}
case $machine in
    x86_64 | aarch64) ;;
    *) fail "no such machine; x86_64 and aarch64 are known" ;;
esac
runner=()
if [[ $machine != "$(uname -m)" ]]; then
    runner=("$(command -v "qemu-$machine-static" || command -v "qemu-$machine" || true)")
fi
declare -A programs=()
for name in cleave cleaved; do
    said=$(scripts/build_static.sh "$machine" "$name" | tee /dev/stderr | tail -n 1)
    if [[ $said == *": not built: "* ]]; then
        echo "packages $machine: not made"
        exit 0
    fi
    programs[$name]=$(sed -n "s/^static $machine: \(.*\), [0-9]* bytes, .*/\1/p" <<<"$said")
    [[ -x ${programs[$name]} ]] || fail "build_static.sh says no program: $said"
done
[[ $machine == "$(uname -m)" || -n ${runner[0]} ]] || fail "qemu is needed to run a program of $machine"
# The folder that a program of this target lies in has the target's name.
target=$(basename "$(dirname "$(dirname "${programs[cleave]}")")")
build "$machine" "${programs[cleave]}" "${programs[cleaved]}" dist "${runner[@]}" "${programs[cleave]}"
