# shellcheck shell=bash
# Downloads llama.cpp and builds it once per version, flags, compiler and processor. Sourced by build.sh.
# The source comes from one archive, which is pinned by its hash. The archive is a PyPI package that contains llama.cpp
# and that pip downloads, or any tarball that LLMD_LLAMA_ARCHIVE names. The source is built with the patches in
# cmake/llama/ (its README.md gives the reason for each). A finished build is a directory that gets its name at the end,
# so it is never incomplete. A lock per build keeps two checkouts from building the same thing.
# To update llama.cpp, run ./build.sh llama-next ARCHIVE, which says which patches fit. Then change the next three
# lines. If the archive is not from PyPI, LLAMA_PACKAGE can be any name, and LLMD_LLAMA_ARCHIVE must always be set.

LLAMA_PACKAGE=xllamacpp
LLAMA_VERSION=2026.10.11549 # llama.cpp 0.6.0, b11549
LLAMA_SHA256=c17ee1163006f70726abb9f72137830818f3d8cb60bfc34cb232d08428eaa22b
LLAMA_RECIPE=1 # increase this number if this file installs other files from the same build
# models/templates has real chat templates, which the tests read.
LLAMA_PARTS=('src/*' 'ggml/*' 'include/*' 'cmake/*' 'common/*' 'vendor/*' 'licenses/*' 'models/templates/*' CMakeLists.txt LICENSE)
LLAMA_CHANGES=$ROOT/cmake/llama
LLAMA_CACHE="${LLMD_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-$BUILD}/.cache}/llmd}/llama"

# --- what to build ---------------------------------------------------------------------------------------------------

llama_backend_detect() {
    if cuda_driver_is_there && cuda_is_complete; then
        echo cuda
    elif [ -e /dev/kfd ] && command -v hipcc >/dev/null; then
        echo hip
    elif compgen -G '/dev/dri/renderD*' >/dev/null && [ -z "$(vulkan_missing)" ]; then
        echo vulkan
    else
        echo cpu
    fi
}

# llama_backend VARIANT: prints the backend for this build. The exact variant always runs on the CPU.
llama_backend() {
    if [[ $1 == exact* ]]; then
        echo cpu
        return
    fi
    local backend=${LLMD_BACKEND:-}
    if [ -z "$backend" ]; then
        backend=$(llama_backend_detect)
        cuda_hint
    fi
    case $backend in
    cpu) ;;
    cuda) cuda_require ;;
    hip) command -v hipcc >/dev/null || die "LLMD_BACKEND=hip needs hipcc: apt-get install hipcc libhipblas-dev librocblas-dev" ;;
    vulkan) vulkan_require LLMD_BACKEND=vulkan ;;
    *) die "LLMD_BACKEND=$backend: not one of cpu, cuda, hip, vulkan" ;;
    esac
    echo "$backend"
}

llama_backend_flags() {
    case $1 in
    cpu) echo "-DGGML_METAL=OFF" ;;
    cuda) cuda_flags ;;
    hip) echo "-DGGML_HIP=ON" ;;
    vulkan) echo "-DGGML_VULKAN=ON" ;;
    esac
}

# The values of LLMD_CPU_FEATURES, for which `./build.sh test-processors` runs the tests. Each is a set of instructions
# for which there are separate kernels: AVX2, AVX2 with VNNI (AVX-VNNI), AVX-512, AVX-512 with VNNI.
LLAMA_PROCESSORS=(avx2 avxvnni avx512 vnni)

# Ends build.sh with an error if the value of LLMD_CPU_FEATURES is not one of these names, or if this processor lacks
# the instructions. Nearly all verbs run the programs that they build. A portable build contains the kernels for all
# processors and chooses among them at run time, so it excludes LLMD_CPU_FEATURES.
llama_features_check() {
    [ -n "${LLMD_CPU_FEATURES:-}" ] || return 0
    printf '%s\n' "${LLAMA_PROCESSORS[@]}" | grep -Fqx -- "$LLMD_CPU_FEATURES" ||
        die "LLMD_CPU_FEATURES=$LLMD_CPU_FEATURES: not one of ${LLAMA_PROCESSORS[*]}"
    [ -z "${LLMD_PORTABLE:-}" ] || die "LLMD_CPU_FEATURES and LLMD_PORTABLE exclude each other: set one of them"
    llama_processor_has "$LLMD_CPU_FEATURES" || die "LLMD_CPU_FEATURES=$LLMD_CPU_FEATURES: this processor cannot run such a build"
}

llama_processor_flags() {
    if [ "$1" = aarch64 ]; then # for test-aarch64; dotprod has the instructions for products of bytes
        echo "$(wheel_flags aarch64) -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod+fp16"
        return
    fi
    echo "-DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"
    case $1 in avxvnni) echo "-DGGML_AVX_VNNI=ON" ;; esac
    case $1 in avx512 | vnni) echo "-DGGML_AVX512=ON" ;; esac
    case $1 in vnni) echo "-DGGML_AVX512_VNNI=ON" ;; esac
}

# llama_processor_has PROCESSOR: whether this machine can run a build for PROCESSOR.
llama_processor_has() {
    case $1 in
    avx2) grep -qw avx2 /proc/cpuinfo ;;
    avxvnni) grep -qw avx_vnni /proc/cpuinfo ;;
    avx512) grep -qw avx512bw /proc/cpuinfo ;;
    vnni) grep -qw avx512_vnni /proc/cpuinfo ;;
    esac
}

llama_variant_flags() {
    case $1 in
    native*) echo "-DBUILD_SHARED_LIBS=OFF" ;;
    # llamafile's and the repacked kernels choose their arithmetic by the shape of the batch. Without these kernels,
    # results have the same bits in any batch.
    exact*) echo "-DBUILD_SHARED_LIBS=OFF -DGGML_LLAMAFILE=OFF -DGGML_CPU_REPACK=OFF" ;;
    portable | wheel-*) echo "-DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON" ;;
    esac
    case $1 in
    native | exact) echo "-DGGML_NATIVE=ON" ;;
    native-* | exact-*) echo "-DGGML_NATIVE=OFF $(llama_processor_flags "${1#*-}")" ;;
    wheel-*) wheel_flags "${1#wheel-}" ;;
    esac
    case $1 in
    # Static libraries become part of libllm.so, which must not export their symbols.
    native* | exact*) echo "-DCMAKE_C_VISIBILITY_PRESET=hidden -DCMAKE_CXX_VISIBILITY_PRESET=hidden -DCMAKE_VISIBILITY_INLINES_HIDDEN=ON" ;;
    portable | wheel-*) echo "-DCMAKE_INSTALL_RPATH=\$ORIGIN -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON" ;;
    esac
}

LLAMA_FLAGS="-DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_LIBDIR=lib \
-DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_SUBPROCESS=OFF \
-DLLAMA_BUILD_NUMBER=0 -DLLAMA_BUILD_COMMIT=pinned -DGGML_CCACHE=OFF -DGGML_OPENMP=OFF"

# amx_verdict PROBE [FLAG]: prints whether AMX works with this compiler and processor: unknown-to-compiler, absent,
# works or broken. PROBE is the path of the test program that is built.
amx_verdict() {
    local probe=$1
    if [ "$(uname -m)" != x86_64 ] ||
        ! "$CXX" -O3 -mamx-tile -mamx-int8 "${@:2}" -o "$probe" "$ROOT/cmake/amx_probe.cpp" >/dev/null 2>&1; then
        echo unknown-to-compiler
    elif ! grep -qw amx_tile /proc/cpuinfo; then
        echo absent
    elif ("$probe") >/dev/null 2>&1; then
        echo works
    else
        echo broken
    fi
}

# amx_flags VARIANT VERDICT: prints the compiler flags that turn AMX off, if it is broken or the variant is exact. AMX
# kernels choose their arithmetic by the shape of the batch.
amx_flags() {
    case $1-$2 in
    *-unknown-to-compiler | *-absent) ;;
    exact*-* | *-broken) echo "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" ;;
    esac
}

processor_identity() {
    { "$CC" -march=native -Q --help=target || "$CC" -march=native -E -dM -x c /dev/null || uname -m; } 2>/dev/null | hash_of
}

# --- where a build is ------------------------------------------------------------------------------------------------

# llama_plan VARIANT: sets LLAMA_PREFIX to the directory of this build, and LLAMA_CONFIGURE to its cmake arguments.
llama_plan() {
    local variant=$1 backend amx flags identity probe
    [[ $variant == exact* ]] || cuda_toolkit_ensure
    backend=$(llama_backend "$variant")
    probe=$(mktemp)
    amx=$(amx_verdict "$probe")
    rm -f "$probe"
    case $variant in native-* | exact-*) amx=absent ;; esac # AMX is not used on any of these processors
    read -r -d '' -a LLAMA_CONFIGURE <<<"$LLAMA_FLAGS $(llama_variant_flags "$variant") $(llama_backend_flags "$backend")" || true
    flags=$(amx_flags "$variant" "$amx")
    [ -z "$flags" ] || LLAMA_CONFIGURE+=("-DCMAKE_C_FLAGS=$flags" "-DCMAKE_CXX_FLAGS=$flags")
    LLAMA_AMX=$amx
    LLAMA_BACKEND=$backend
    case $variant in
    portable) identity=$(uname -m) ;;
    wheel-*) identity=$(basename "${CC%/bin/gcc}") ;; # toolchain-ARCHITECTURE-HASH
    *) identity=$(processor_identity) ;;
    esac
    LLAMA_DESCRIPTION=$(
        printf '%s\n' "variant $variant" "backend $backend" "amx $amx" "processor $identity" \
            "source $LLAMA_PACKAGE $LLAMA_VERSION $LLAMA_SHA256" "recipe $LLAMA_RECIPE" \
            "changes $(llama_changes_identity)" \
            "cc $("$CC" --version | head -n 1)" "cxx $("$CXX" --version | head -n 1)" "flags ${LLAMA_CONFIGURE[*]}"
        [ "$backend" != cuda ] || cuda_identity
    )
    LLAMA_PREFIX=$LLAMA_CACHE/$variant-$backend-$(hash_of <<<"$LLAMA_DESCRIPTION")
}

# llama_ensure VARIANT: makes this build if it does not exist yet. Sets LLAMA_PREFIX to its directory.
llama_ensure() {
    local variant=$1 base=
    if [[ $variant == exact* ]]; then
        LLMD_BACKEND=cpu llama_ensure native
        base=$LLAMA_PREFIX
    fi
    llama_plan "$variant"
    [ ! -d "$LLAMA_PREFIX" ] || return 0
    mkdir -p "$LLAMA_CACHE"
    (
        if ! flock -n 9; then
            say "llama.cpp ($variant): waiting for another build of the same thing"
            flock 9
        fi
        [ -d "$LLAMA_PREFIX" ] || llama_make "$variant" "$base"
    ) 9>"$LLAMA_PREFIX.lock"
}

llama_make() {
    local variant=$1 base=$2 minutes
    case $variant-$LLAMA_BACKEND in
    *-vulkan) minutes=40 ;;
    *-cuda | *-hip) minutes=90 ;;
    native-*) minutes=3 ;;
    exact-*) minutes=1 ;;
    portable-* | wheel-*) minutes=15 ;;
    esac
    if [ "$LLAMA_AMX" = unknown-to-compiler ] && [[ $variant != wheel-* ]] && grep -qw amx_tile /proc/cpuinfo; then
        say "this processor has AMX, but $CXX does not know it: gcc 11 or later would make quantized models twice as fast"
    fi
    llama_source
    stage "llama.cpp ($variant, AMX $LLAMA_AMX): about $minutes min on 2 cores, once" \
        llama_compile "$variant" "$LLAMA_SOURCE" "$base"
}

# Downloads and patches the source if needed. Sets LLAMA_ORIGINAL to the directory of the original source, and
# LLAMA_SOURCE to that of the patched source.
llama_source() {
    LLAMA_ORIGINAL=$LLAMA_CACHE/source-$LLAMA_VERSION-${LLAMA_SHA256:0:12}-$(hash_of <<<"${LLAMA_PARTS[*]}")
    [ -d "$LLAMA_ORIGINAL" ] ||
        stage "llama.cpp source: $LLAMA_PACKAGE $LLAMA_VERSION, 38 MB" llama_fetch "$LLAMA_ORIGINAL" "${LLAMA_PARTS[@]}"
    LLAMA_SOURCE=$LLAMA_ORIGINAL-$(llama_changes_identity)
    [ -d "$LLAMA_SOURCE" ] || llama_change "$LLAMA_ORIGINAL" "$LLAMA_SOURCE"
}

# Sets LLAMA_PATCHES to the patches of this build, in order. If LLAMA_LAVAPIPE is set, includes those for lavapipe,
# Mesa's software renderer.
llama_patches() {
    LLAMA_PATCHES=("$LLAMA_CHANGES"/*.patch)
    [ -z "${LLAMA_LAVAPIPE:-}" ] || LLAMA_PATCHES+=("$LLAMA_CHANGES"/lavapipe/*.patch)
}

llama_changes_identity() {
    llama_patches
    cat "${LLAMA_PATCHES[@]}" "$LLAMA_CHANGES"/*.h | hash_of
}

# --- downloading, patching, compiling --------------------------------------------------------------------------------

# llama_change ORIGINAL CHANGED: makes the directory CHANGED, a copy of ORIGINAL with the patches applied and the new
# headers in src/.
llama_change() {
    local original=$1 changed=$2 change
    (
        flock 8
        [ ! -d "$changed" ] || exit 0
        work=$(mktemp -d "$LLAMA_CACHE/change.XXXXXX") # not local: the trap outlives this function
        trap 'rm -rf "$work"' EXIT
        cp -r "$original" "$work/tree"
        llama_patches
        for change in "${LLAMA_PATCHES[@]}"; do
            patch --silent --forward --no-backup-if-mismatch --fuzz=0 --strip=1 --directory="$work/tree" <"$change" ||
                die "${change##*/} does not fit $LLAMA_PACKAGE $LLAMA_VERSION"
        done
        cp "$LLAMA_CHANGES"/*.h "$work/tree/src/"
        mv "$work/tree" "$changed"
    ) 8>"$changed.lock"
}

# llama_fetch SOURCE PART...: downloads the pinned llama.cpp, and makes the directory SOURCE with these parts of it.
llama_fetch() {
    local source=$1
    shift
    (
        flock 8
        [ ! -d "$source" ] || exit 0
        work=$(mktemp -d "$LLAMA_CACHE/fetch.XXXXXX") # not local: the trap outlives this function
        trap 'rm -rf "$work"' EXIT
        llama_download "$work"
        llama_unpack "$work"/archive "$work/tree" "$@"
        mv "$work/tree" "$source"
    ) 8>"$source.lock"
}

# llama_download WORK: stores the archive as WORK/archive. LLMD_LLAMA_ARCHIVE is the path of an archive that the user
# has downloaded. LLMD_LLAMA_SDIST is the former name of this variable.
llama_download() {
    local work=$1 given=${LLMD_LLAMA_ARCHIVE:-${LLMD_LLAMA_SDIST:-}}
    if [ -n "$given" ]; then
        echo "$LLAMA_SHA256  $given" | sha256sum --check --strict
        cp "$given" "$work/archive"
        return
    fi
    echo "$LLAMA_PACKAGE==$LLAMA_VERSION --hash=sha256:$LLAMA_SHA256" >"$work/requirement.txt"
    # Only this package is downloaded as source. pip installs its build requirements as wheels, because it would
    # otherwise compile cmake.
    "$PYTHON_ENV/bin/python" -m pip download --no-deps --no-binary "$LLAMA_PACKAGE" --require-hashes \
        -r "$work/requirement.txt" -d "$work"
    mv "$work"/*.tar.gz "$work/archive"
}

# llama_unpack ARCHIVE TREE PART...: makes the directory TREE with these parts of the llama.cpp in ARCHIVE.
llama_unpack() {
    local archive=$1 tree=$2 root
    shift 2
    root=$(tar -tf "$archive" | llama_root) || die "no llama.cpp in $archive"
    mkdir "$tree.unpacked"
    tar -xf "$archive" -C "$tree.unpacked" --wildcards "${@/#/$root}"
    mv "$(cd "$tree.unpacked/$root" && pwd -P)" "$tree" # pwd -P, because mv refuses a path that ends in .
    rm -rf "$tree.unpacked"
}

# Reads the names of an archive's files, and prints the folder of llama.cpp with a slash at its end. This is the
# outermost folder that has CMakeLists.txt, ggml/CMakeLists.txt and src/llama.cpp. Fails if there is none.
llama_root() {
    awk '
        sub(/CMakeLists\.txt$/, "") { top[$0]; if (sub(/ggml\/$/, "")) ggml[$0] }
        sub(/src\/llama\.cpp$/, "") { src[$0] }
        END {
            for (root in src)
                if (root in top && root in ggml && (!found++ || length(root) < length(best))) best = root
            if (!found) exit 1
            print best
        }'
}

# llama_next ARCHIVE: prints for each patch whether it fits the llama.cpp in ARCHIVE. Each patch is applied on top of
# the earlier ones. Fails if a patch does not fit.
llama_next() {
    local change header count failed=0
    work=$(mktemp -d) # not local: the trap outlives this function
    trap 'rm -rf "$work"' EXIT
    llama_unpack "$1" "$work/tree" "${LLAMA_PARTS[@]}"
    echo "llama.cpp $(awk '/^set\(LLAMA_VERSION_(MAJOR|MINOR|PATCH) / {v = v s ($2 + 0); s = "."} END {print v}' "$work/tree/CMakeLists.txt")"
    LLAMA_LAVAPIPE=1 llama_patches
    for change in "${LLAMA_PATCHES[@]}"; do
        patch --batch --forward --fuzz=0 --strip=1 --directory="$work/tree" --reject-file=- <"$change" >"$work/said" 2>&1 || true
        count=$(grep -c '^@@ ' "$change")
        awk -v name="${change#"$LLAMA_CHANGES"/}" -v all="$count" '
            / out of [0-9]+ hunks? (FAILED|ignored)/ { failed += $1 }
            /^can.t find file to patch/ { missing = 1 }
            /^\|\+\+\+ / && missing { file = $2; sub(/^b\//, "", file); files = files " " file; missing = 0 }
            END {
                printf "  %-32s %s\n", name, failed ? failed " of " all " hunks fail" (files ? "; no such file:" files : "") : "applies"
                exit failed > 0
            }' "$work/said" || failed=$((failed + 1))
    done
    for header in "$LLAMA_CHANGES"/*.h; do
        [ ! -e "$work/tree/src/${header##*/}" ] || { echo "  ${header##*/}: llama.cpp has a file of this name"; failed=$((failed + 1)); }
    done
    [ "$failed" -eq 0 ] || die "$failed of our changes do not fit"
}

llama_compile() {
    local variant=$1 source=$2 base=$3
    # The path of the work directory does not depend on the source. So ccache, if installed, finds the files that a new
    # patch does not change.
    work=$LLAMA_CACHE/$variant-$LLAMA_BACKEND.work # not local: the trap outlives this function
    exec 8>"$work.lock"
    flock 8
    rm -rf "$work"
    trap 'rm -rf "$work"' EXIT
    mkdir "$work"
    cp -r "$source" "$work/source"
    case $variant in portable | wheel-*) llama_leave_out "$variant" "$work/source/ggml/src/CMakeLists.txt" ;; esac
    if [ "$LLAMA_BACKEND" = cuda ]; then
        cuda_driver_calls "$work/libcuda-driver.a"
        LLAMA_CONFIGURE+=("-DCUDA_cuda_driver_LIBRARY=$work/libcuda-driver.a")
    fi
    "$CMAKE" -G Ninja -DCMAKE_MAKE_PROGRAM="$NINJA" -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" \
        -S "$work/source" -B "$work/build" -DCMAKE_INSTALL_PREFIX="$work/prefix" "${LLAMA_CONFIGURE[@]}"
    if [ -n "$base" ]; then
        llama_compile_kernels "$base"
    else
        llama_compile_all "$variant" "$source"
    fi
    echo "$LLAMA_DESCRIPTION" >"$work/prefix/description.txt"
    mv "$work/prefix" "$LLAMA_PREFIX"
}

# llama_cmake_build FOLDER [arguments]: runs cmake's build. PATH includes ninja's folder, because the separate cmake
# project of the Vulkan shaders looks for ninja there.
llama_cmake_build() { PATH=$PATH:${NINJA%/*} "$CMAKE" --build "$1" --parallel "$JOBS" "${@:2}"; }

llama_compile_all() {
    local variant=$1 source=$2
    llama_cmake_build "$work/build"
    "$CMAKE" --install "$work/build"
    llama_install_common "$work/build" "$source" "$work/prefix"
    [ "$LLAMA_BACKEND" != cuda ] || cp "$work/libcuda-driver.a" "$work/prefix/lib/"
    case $variant in portable | wheel-*) llama_gather_portable "$work/prefix" ;; esac
}

# llama_leave_out VARIANT LIST: removes CPU backends from those among which a portable build chooses at run time.
# Backends with SME are removed if the compiler does not support SME (gcc before 14). A processor with SME then uses the
# best remaining backend. Wheels also leave out backends that hardly differ from the next lower one: no kernel uses
# AVX512-VBMI, and only one function uses SVE2. Wheels leave out AMX if this machine cannot test it. Each backend takes
# minutes to compile and adds 0.5 MB to the wheel.
llama_leave_out() {
    local processor
    local -a left_out=()
    "$CC" -march=armv9.2-a+sme -E - </dev/null >/dev/null 2>&1 || left_out+=('armv9\.2_[12]')
    if [[ $1 == wheel-* ]]; then
        left_out+=(sse42 ivybridge piledriver cannonlake icelake cooperlake 'armv8\.2_[13]' 'armv8\.6_2')
        [ "$LLAMA_AMX" = works ] || left_out+=(sapphirerapids)
    fi
    for processor in "${left_out[@]}"; do
        sed -i "/^ *ggml_add_cpu_backend_variant($processor /d" "$2"
    done
}

# Compiles only the CPU kernels, and copies everything else from a native build for the CPU. The exact variant differs
# from the native variant only in these kernels.
llama_compile_kernels() {
    llama_cmake_build "$work/build" --target ggml-cpu
    cp -r "$1" "$work/prefix"
    find "$work/build" -name libggml-cpu.a -exec cp {} "$work/prefix/lib/" \;
}

# Installs llama.cpp's common library, because llama.cpp's own build does not: its archives, its headers, and the JSON
# library that the headers include.
llama_install_common() {
    local build=$1 source=$2 prefix=$3
    find "$build" \( -name 'libllama-common*.a' -o -name 'libcpp-httplib.a' \) -exec cp {} "$prefix/lib/" \;
    find "$build" -name 'libllama-common.so*' -exec cp -P {} "$prefix/lib/" \;
    mkdir -p "$prefix/include/common"
    (cd "$source/common" && find . -name '*.h' -o -name '*.hpp') | while read -r header; do
        install -D -m 644 "$source/common/$header" "$prefix/include/common/$header"
    done
    cp -r "$source/vendor/nlohmann" "$source/vendor/sheredom" "$prefix/include/"
    mkdir -p "$prefix/share/licenses"
    cp "$source/LICENSE" "$prefix/share/licenses/llama.cpp"
    find "$source/licenses" -type f -exec cp {} "$prefix/share/licenses/" \;
}

# Copies the libraries that a portable libllm loads at run time to run/, under the names that the loader uses. Removes
# the AMX backend unless this machine has tested AMX code.
llama_gather_portable() {
    local prefix=$1 library
    [ "$LLAMA_AMX" = works ] || find "$prefix" -name 'libggml-cpu-sapphirerapids*' -delete
    mkdir -p "$prefix/run"
    for library in "$prefix"/lib/*.so.[0-9] "$prefix"/bin/libggml-*.so; do
        cp -L "$library" "$prefix/run/"
    done
}

# llama_notices DIRECTORY: copies the license notices of everything in the build LLAMA_PREFIX to DIRECTORY/LICENSE-NAME.
llama_notices() {
    local to=$1 file name
    for file in "$LLAMA_PREFIX"/share/licenses/*; do
        name=${file##*/}
        cp "$file" "$to/LICENSE-${name#LICENSE-}"
    done
    # ggml's matrix kernels come from llamafile. Their license notice is not a file, but the first comment of their
    # source.
    llama_source
    sed -n '/^\/\//!q; s|^// \{0,1\}||p' "$LLAMA_SOURCE/ggml/src/ggml-cpu/llamafile/sgemm.cpp" >"$to/LICENSE-llamafile"
    grep -q '^Copyright ' "$to/LICENSE-llamafile" || die "no licence notice in llamafile's kernels"
}
