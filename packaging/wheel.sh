# shellcheck shell=bash
# The wheels of `./build.sh wheel`: one per architecture, for any Linux with glibc 2.28 (manylinux_2_28). Sourced by build.sh.
#
# The C and C++ compilers are the machine's gcc, or Debian's cross compiler for the other architecture. Headers and libraries
# of glibc 2.28 come from the PyPI package ziglang, which can make them for any version: a library linked against those asks
# for no newer symbol. libstdc++ is linked statically, since a symbol of gcc 12 is not in the libstdc++ of that time. (zig's own
# compiler was no choice: it does not know -march=armv8.2-a+dotprod, and its static libc++ cannot catch an exception that
# another of our libraries throws.)

WHEEL_GLIBC=28 # of 2.28: Debian 10, Ubuntu 20.04, RHEL 8
WHEEL_ARCHITECTURES=(x86_64 aarch64)
WHEEL_TOOLS=$BUILD/wheel-tools # an environment of its own, with the packages of requirements/wheel.txt

wheel_tools_setup() {
    local PYTHON_ENV=$WHEEL_TOOLS
    environment_once "$(find_python)" "environment of the packaging tools: build/wheel-tools"
    requirements_install wheel
}

# wheel_program ARCHITECTURE PROGRAM: gcc, g++, ar or strip for this architecture; nothing: it is not installed.
wheel_program() {
    command -v "$1-linux-gnu-$2" || { [ "$1" != "$(uname -m)" ] || command -v "$2"; } || true
}

# Sets CC and CXX to compilers of ARCHITECTURE for glibc 2.28.
wheel_toolchain() {
    local architecture=$1 identity directory
    WHEEL_CC=$(wheel_program "$architecture" gcc)
    WHEEL_CXX=$(wheel_program "$architecture" g++)
    [ -n "$WHEEL_CXX" ] ||
        die "a wheel for $architecture needs a compiler: apt-get install g++-${architecture/_/-}-linux-gnu (or: ./build.sh wheel $(uname -m))"
    wheel_tools_setup
    identity=$({
        declare -f wheel_toolchain_make wheel_compiler
        cat "$ROOT/packaging/glibc.c"
        grep '^ziglang==' "$ROOT/requirements/wheel.txt"
        "$WHEEL_CXX" --version
        "$PYTHON_ENV/bin/python" -c 'import sys; print(sys.version, sys.base_prefix)'
    } | hash_of)
    directory=$LLAMA_CACHE/toolchain-$architecture-$identity
    [ -d "$directory" ] || stage "compiler for $architecture with glibc 2.$WHEEL_GLIBC" wheel_toolchain_make "$architecture" "$directory"
    CC=$directory/bin/gcc
    CXX=$directory/bin/g++
}

wheel_toolchain_make() {
    local architecture=$1 directory=$2 zig=$WHEEL_TOOLS/bin/python kernel=${1/_64/} header
    mkdir -p "$LLAMA_CACHE"
    (
        flock 8
        [ ! -d "$directory" ] || exit 0
        work=$(mktemp -d "$directory.work.XXXXXX") # not local: the trap outlives this function
        trap 'rm -rf "$work"' EXIT
        mkdir -p "$work/tree"/{bin,include,lib}

        # Headers: those of the architecture before those of all.
        header=$("$zig" -c 'import ziglang, os; print(os.path.dirname(ziglang.__file__))')/lib/libc/include
        for part in any-linux-any "$kernel-linux-any" generic-glibc "$kernel-linux-gnu"; do
            [ ! -d "$header/$part" ] || cp -r "$header/$part/." "$work/tree/include/"
        done
        rm "$work/tree/include/sys/single_threaded.h" # since 2.32: an #error in it says so, but libstdc++ asks whether there is one
        # Debian's Python.h includes <ARCHITECTURE-linux-gnu/python3.11/pyconfig.h>.
        "$PYTHON_ENV/bin/python" -c 'import sysconfig; print(sysconfig.get_config_h_filename())' | while read -r header; do
            mkdir -p "$work/tree/include/$architecture-linux-gnu"
            ln -s "${header%/*}" "$work/tree/include/$architecture-linux-gnu/$(basename "${header%/*}")"
        done

        # Libraries: zig makes them in its cache when it links something.
        echo 'int one(void) { return 1; }' >"$work/one.c"
        ZIG_LOCAL_CACHE_DIR=$work/zig ZIG_GLOBAL_CACHE_DIR=$work/zig "$zig" -m ziglang cc \
            -target "$architecture-linux-gnu.2.$WHEEL_GLIBC" -shared -fPIC -o "$work/one.so" "$work/one.c"
        find "$work/zig" \( -name '*.so.*' -o -name libc_nonshared.a \) -exec cp {} "$work/tree/lib/" \;
        for library in m pthread dl rt util resolv; do
            ln -s "$(cd "$work/tree/lib" && echo "lib$library".so.*)" "$work/tree/lib/lib$library.so"
        done

        wheel_compiler gcc c "$WHEEL_CC" "$directory" >"$work/tree/bin/gcc"
        wheel_compiler g++ c++ "$WHEEL_CXX" "$directory" >"$work/tree/bin/g++"
        chmod +x "$work/tree/bin"/*
        sed "s|$directory|$work/tree|g" "$work/tree/bin/gcc" >"$work/gcc"
        chmod +x "$work/gcc"
        "$work/gcc" -O2 -fPIC -fvisibility=hidden -c -o "$work/glibc.o" "$ROOT/packaging/glibc.c"
        "$(wheel_program "$architecture" ar)" rcs "$work/tree/lib/libnewer.a" "$work/glibc.o"
        echo "GROUP ( libc.so.6 libc_nonshared.a libnewer.a AS_NEEDED ( libld.so.2 ) )" >"$work/tree/lib/libc.so"
        mv "$work/tree" "$directory"
    ) 8>"$directory.lock"
}

# wheel_compiler NAME LANGUAGE COMPILER DIRECTORY: a program that calls the compiler with DIRECTORY's headers and libraries in
# place of the system's.
wheel_compiler() {
    local language=$2 compiler=$3 directory=$4 include flags=
    # The compiler's own headers and those of C++ stay. A symbolic link of ccache would not find the compiler's name.
    while read -r include; do
        flags+=" -isystem $include"
    done < <("$compiler" -x "$language" -E -v - </dev/null 2>&1 | sed -n '/^#include <\.\.\.>/,/^End of search list/p' | grep -E '/(c\+\+|gcc|gcc-cross)/')
    cat <<TEXT
#!/bin/sh
exec ${compiler##*/} -nostdinc$flags -isystem $directory/include -D__GLIBC_MINOR__=$WHEEL_GLIBC "\$@" -L$directory/lib -static-libstdc++ \\
    -Wl,--exclude-libs,libstdc++.a:libnewer.a:libc_nonshared.a -Wl,--allow-shlib-undefined
TEXT
}

# wheel_flags ARCHITECTURE: what cmake has to know to build for it.
wheel_flags() {
    [ "$1" = "$(uname -m)" ] || echo "-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=$1"
}

# wheel_make ARCHITECTURE: into build/wheels, checked.
wheel_make() {
    local architecture=$1 CC=$CC CXX=$CXX
    [[ " ${WHEEL_ARCHITECTURES[*]} " == *" $architecture "* ]] || die "no wheel for $architecture; there are: ${WHEEL_ARCHITECTURES[*]}"
    wheel_toolchain "$architecture"
    # When cmake builds for another architecture, it does not look for Python's headers.
    # shellcheck disable=SC2046  # options
    LLMD_BACKEND=cpu native_build "wheel-$architecture" "wheel-$architecture" package $(wheel_flags "$architecture") \
        "-DPython_INCLUDE_DIR=$("$PYTHON_ENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
    make_wheel "wheel-$architecture" "manylinux_2_${WHEEL_GLIBC}_$architecture" "$(wheel_program "$architecture" strip)"
    stage "wheel for $architecture: checks" wheel_check "$BUILD"/wheels/*"$architecture".whl
}

# wheel_check WHEEL: it asks for no newer glibc and no other library than its name says, and for Python's stable interface alone.
wheel_check() {
    local bin=$WHEEL_TOOLS/bin found
    found=$("$bin/auditwheel" show "$1")
    echo "$found"
    found=$(grep -o 'tag: *"manylinux_2_[0-9]*' <<<"${found//$'\n'/ }" | grep -o '[0-9]*$')
    [ "${found:-99}" -le "$WHEEL_GLIBC" ] || die "${1##*/} needs glibc 2.${found:-?}"
    "$bin/abi3audit" --strict "$1"
    "$bin/twine" check --strict "$1"
}

# --- trying it -------------------------------------------------------------------------------------------------------

# wheel_of ARCHITECTURE: the newest wheel in dist/.
wheel_of() {
    local wheel
    # shellcheck disable=SC2012  # our own names
    wheel=$(ls -t "$ROOT"/dist/llmd-*manylinux*_"$1".whl 2>/dev/null | head -n 1)
    [ -n "$wheel" ] || die "dist/ has no wheel for $1; make it with: ./build.sh wheel $1"
    echo "$wheel"
}

# wheel_try ARCHITECTURE: installs the wheel in an empty environment outside of the checkout and uses it there.
wheel_try() {
    local architecture=$1 wheel python
    wheel=$(wheel_of "$architecture")
    python=$(find_python)
    (
        folder=$(mktemp -d)
        trap 'rm -rf "$folder"' EXIT
        cd "$folder" || exit
        if [ "$architecture" = "$(uname -m)" ]; then
            stage "install ${wheel##*/}" wheel_install "$python" "$wheel" "$folder"
            "$python" "$ROOT/tools/try_installed.py" --llmd env/bin/llmd --llmctl env/bin/llmctl --folder "$folder" 2>"$LOGS/test-wheel.log"
        else
            stage "install ${wheel##*/}" wheel_install_foreign "$architecture" "$wheel" "$folder"
            program="env PYTHONHOME=$folder/debian/usr PYTHONPATH=$folder/site qemu-$architecture-static -L $folder/debian -cpu max $folder/debian/usr/bin/python3"
            "$python" "$ROOT/tools/try_installed.py" --llmd "$program -m llmd" --llmctl "$program -m llmd.ctl" --folder "$folder" \
                --seconds 300 2>"$LOGS/test-wheel.log"
        fi || die "$(tail -n 20 "$LOGS/test-wheel.log")"
        du -h --apparent-size "$wheel" | awk -v name="${wheel##*/}" '{print name ": " $1 "B"}'
    )
}

wheel_install() {
    "$1" -m venv "$3/env"
    "$3/env/bin/pip" install --disable-pip-version-check "$2"
}

# Another architecture's Python out of Debian's packages, for an emulator; pip of this machine installs for it.
wheel_install_foreign() {
    local architecture=$1 wheel=$2 work=$3 version
    { command -v "qemu-$architecture-static" && command -v mmdebstrap; } || die "install: apt-get install qemu-user-static mmdebstrap"
    mmdebstrap --arch="$(deb_architecture "$architecture")" --variant=extract --include=python3,libgcc-s1 \
        "${LLMD_TEST_SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}" "$folder/debian"
    version=$(basename "$(readlink "$folder/debian/usr/bin/python3")")
    wheel_packages "$architecture" "${version#python}" "$folder/site" "$wheel"
}

# deb_architecture ARCHITECTURE: Debian's name for it.
deb_architecture() {
    case $1 in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    esac
}

# wheel_packages ARCHITECTURE PYTHON FOLDER ARGUMENT...: what pip would install there, unpacked into FOLDER.
wheel_packages() {
    local architecture=$1 version=$2 folder=$3 glibc
    local -a platforms=()
    shift 3
    for ((glibc = WHEEL_GLIBC; glibc >= 17; glibc--)); do platforms+=(--platform "manylinux_2_${glibc}_$architecture"); done
    "$PYTHON_ENV/bin/python" -m pip install --disable-pip-version-check --quiet --only-binary :all: --python-version "$version" \
        --implementation cp "${platforms[@]}" --platform "manylinux2014_$architecture" --target "$folder" "$@"
}
