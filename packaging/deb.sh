# shellcheck shell=bash
# The Debian package of `./build.sh deb`, made of the wheel and of the Python packages that it needs. Sourced by build.sh.
#
# Some of those packages are compiled for one version of Python, so the package has them for each of DEB_PYTHONS: the same file
# installs on Debian 12 and 13 and on Ubuntu 24.04. /usr/bin/llmd takes those of the Python that starts it.

DEB_PYTHONS=(3.11 3.12 3.13)

# make_debs [ARCHITECTURE...]: by default this machine's.
make_debs() {
    local architecture
    [ $# -gt 0 ] || set -- "$(uname -m)"
    make_wheels "$@"
    for architecture; do
        stage "Debian package for $architecture: dist/" make_deb "$architecture"
    done
    ls -l "$ROOT"/dist/llmd_*.deb
    ! command -v lintian >/dev/null || deb_lintian "$@"
}

# make_deb ARCHITECTURE
make_deb() {
    local architecture=$1 version wheel tree
    version=$("$PYTHON_ENV/bin/python" -c "import sys; sys.path.insert(0, '$ROOT/daemon'); import llmd; print(llmd.__version__)")
    wheel=$(wheel_of "$architecture")
    tree=$BUILD/deb/$architecture
    rm -rf "$tree"
    mkdir -p "$tree"/usr/{bin,lib/llmd,lib/systemd/system,lib/sysusers.d,lib/tmpfiles.d,share/doc/llmd/examples} "$tree"/etc/llmd "$tree/DEBIAN"
    deb_packages "$architecture" "$wheel" "$tree/usr/lib/llmd"
    deb_share "$tree"
    deb_service "$tree"
    deb_program llmd llmd.__main__ "$tree/usr/bin/llmd"
    deb_program llmctl llmd.ctl.__main__ "$tree/usr/bin/llmctl"
    deb_control "$architecture" "$version" "$tree"
    dpkg-deb --build --root-owner-group -Zxz "$tree" "$ROOT/dist/llmd_${version}_$(deb_architecture "$architecture").deb"
}

# deb_packages ARCHITECTURE WHEEL FOLDER: llmd once, and what it needs for each version of Python.
deb_packages() {
    local architecture=$1 wheel=$2 folder=$3 version
    wheel_packages "$architecture" "${DEB_PYTHONS[0]}" "$folder/common" --no-deps "$wheel"
    rm -r "$folder/common/bin"
    for version in "${DEB_PYTHONS[@]}"; do
        wheel_packages "$architecture" "$version" "$folder/python$version" --require-hashes \
            -r "$ROOT/requirements/runtime.txt" -r "$ROOT/requirements/otel.txt"
        rm -rf "$folder/python$version/bin"
    done
    # Sources, headers and type stubs serve no one here.
    find "$folder"/python* \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.c' -o -name '*.h' -o -name '*.pyi' \) -delete
    find "$folder" -name __pycache__ -prune -exec rm -r {} +
    find "$folder" -name '*.so*' -exec "$(wheel_program "$architecture" strip)" --strip-unneeded {} +
    find "$folder" -type d -exec chmod 755 {} + -o -exec chmod 644 {} +
}

# Manual, completion and documentation, where Debian has them.
deb_share() {
    local tree=$1 doc=$1/usr/share/doc/llmd common=$1/usr/lib/llmd/common/share
    mkdir -p "$tree/usr/share/zsh"
    mv "$common/man" "$common/bash-completion" "$common/fish" "$tree/usr/share/"
    mv "$common/zsh/site-functions" "$tree/usr/share/zsh/vendor-completions"
    rm -r "$common"
    cp "$ROOT"/README.md "$ROOT"/docs/*.md "$doc/"
    cp "$ROOT/CHANGELOG.md" "$doc/NEWS.md"
    gzip -9n "$doc/NEWS.md" "$tree"/usr/share/man/man?/*
    cp "$ROOT/systemd/gpu.conf" "$doc/examples/"
    {
        cat "$ROOT/packaging/debian/copyright"
        for license in "$tree"/usr/lib/llmd/common/llmd-*.dist-info/licenses/LICENSE*; do
            printf '\n%s\n\n' "--- ${license##*/} ---"
            cat "$license"
        done
    } >"$doc/copyright"
}

deb_service() {
    local tree=$1 unit
    for unit in "$ROOT"/systemd/llmd{,@}.service; do
        sed 's|/opt/llmd/bin/|/usr/bin/|' "$unit" >"$tree/usr/lib/systemd/system/${unit##*/}"
    done
    cp "$ROOT/systemd/llmd.socket" "$tree/usr/lib/systemd/system/"
    cp "$ROOT/systemd/llmd.sysusers.conf" "$tree/usr/lib/sysusers.d/llmd.conf"
    cp "$ROOT/packaging/debian/llmd.tmpfiles.conf" "$tree/usr/lib/tmpfiles.d/llmd.conf"
    cp "$ROOT/packaging/debian/llmd.env" "$tree/etc/llmd/"
}

deb_program() {
    sed "s|@NAME@|$1|; s|@MODULE@|$2|; s|@PYTHONS@|${DEB_PYTHONS[*]}|" "$ROOT/packaging/debian/program" >"$3"
    chmod 755 "$3"
}

# deb_control ARCHITECTURE VERSION TREE
deb_control() {
    local architecture=$1 version=$2 tree=$3 first=${DEB_PYTHONS[0]} last=${DEB_PYTHONS[-1]}
    printf 'llmd (%s) unstable; urgency=medium\n\n  * See NEWS.md.gz.\n\n -- The llmd authors <llmd@packages.invalid>  %s\n' "$version" \
        "$(date -R -u -d "@${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || date +%s)}")" |
        gzip -9n >"$tree/usr/share/doc/llmd/changelog.gz"
    cp "$ROOT"/packaging/debian/{postinst,prerm,postrm,triggers} "$tree/DEBIAN/"
    chmod 755 "$tree"/DEBIAN/{postinst,prerm,postrm}
    echo /etc/llmd/llmd.env >"$tree/DEBIAN/conffiles"
    (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    sed "s|@VERSION@|$version|; s|@ARCHITECTURE@|$(deb_architecture "$architecture")|; s|@GLIBC@|$WHEEL_GLIBC|
         s|@SIZE@|$(du -k -s --exclude=DEBIAN "$tree" | cut -f1)|; s|@PYTHON_FIRST@|$first|; s|@PYTHON_AFTER@|3.$((${last#3.} + 1))|" \
        "$ROOT/packaging/debian/control" >"$tree/DEBIAN/control"
    chmod -R u+rwX,go=rX "$tree"
}

# What lintian reports on our part; of the vendored packages it would say that Debian has them.
deb_lintian() {
    local architecture
    for architecture; do
        lintian --fail-on error --suppress-tags embedded-library,initial-upload-closes-no-bugs \
            "$ROOT"/dist/llmd_*_"$(deb_architecture "$architecture")".deb || die "lintian found errors"
    done
}

# --- trying it -------------------------------------------------------------------------------------------------------

# deb_try: in a fresh Debian of its own folder, without systemd: install, serve, upgrade, remove and purge the package.
deb_try() {
    local deb
    deb=$(compgen -G "$ROOT/dist/llmd_*_$(deb_architecture "$(uname -m)").deb" | tail -n 1) || die "dist/ has no package; make it with: ./build.sh deb"
    if [ "$(id -u)" -ne 0 ] || ! command -v mmdebstrap >/dev/null; then die "test-deb needs root and: apt-get install mmdebstrap"; fi
    (
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        stage "a Debian to install it in" mmdebstrap --variant=minbase --include=python3,adduser \
            "${LLMD_TEST_SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}" "$work/root"
        deb_next "$deb" "$work"
        # What is mounted there is only for this program, and gone when it ends.
        unshare --mount "$ROOT/packaging/deb_try.sh" "$work" "$deb" "$ROOT" "$(find_python)"
        du -h --apparent-size "$deb" | awk -v name="${deb##*/}" '{print name ": " $1 "B"}'
    )
}

# deb_next DEB WORK: the same package as a later version, to upgrade to: WORK/next.deb.
deb_next() {
    dpkg-deb -R "$1" "$2/next"
    sed -i 's|^Version: .*|&+next|' "$2/next/DEBIAN/control"
    dpkg-deb --build --root-owner-group -Z none "$2/next" "$2/next.deb"
    rm -r "$2/next"
}
