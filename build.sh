#!/usr/bin/env bash
# Builds, runs and tests llmd. Each verb has a function verb_NAME. `./build.sh --help` explains the verbs.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BUILD=$ROOT/build
LOGS=$BUILD/log
PYTHON_ENV=$ROOT/.venv
PACKAGE=$ROOT/daemon/llmd
CXX_ASKED=${CXX:-} # the compiler that the user has set. Otherwise nvcc chooses one that it supports
CC=${CC:-$(command -v gcc || command -v cc || true)}
CXX=${CXX:-$(command -v g++ || command -v c++ || true)}

# Removes the environment's bin from the PATH, where users of llmctl may have put it. Otherwise the environment would be
# made with its own Python, which is impossible.
PATH=:$PATH:
while [[ $PATH == *":$PYTHON_ENV/bin:"* ]]; do
    PATH=${PATH/":$PYTHON_ENV/bin:"/:}
done
PATH=${PATH#:}
PATH=${PATH%:}

# A failed assertion inside llama.cpp must not start a debugger.
export GGML_NO_BACKTRACE=1

# A build for a processor with fewer instructions has a folder of its own. This variable makes the Python package load
# the library from there.
[ -z "${LLMD_CPU_FEATURES:-}" ] || export LLMD_LIBLLM_VARIANT=${LLMD_LIBLLM_VARIANT:-native-$LLMD_CPU_FEATURES}

usage() {
    cat <<'TEXT'
usage: ./build.sh VERB [arguments]

  serve [llmd arguments]   set up everything, then serve a model (llmd's own options: ./build.sh serve --help)
  test [pytest arguments]  set up everything, then run the C tests and the Python tests
  test-vulkan              run the tests of model memory with all layers on a software GPU (Mesa's lavapipe)
  test-processors          run the tests that warm equals cold to the bit, built for AVX2, AVX-512 and AVX-512 VNNI
  test-aarch64 [test...]   run the C tests, built for aarch64, in an emulator (takes hours without a test's name)
  test-lowest              run the Python tests with the lowest versions of packages that setup.cfg allows
  check                    ruff, mypy --strict, clang-format, shellcheck (where installed), structure tests
  format                   let ruff and clang-format rewrite the sources in place
  asan | tsan              the C tests under address+undefined or thread sanitizer
  fuzz [name...]           fuzz the parsers of foreign bytes, each for LLMD_FUZZ_SECONDS (default 20)
  soak [arguments]         minutes of random clients against a daemon (--minutes 5 --model sim:hybrid --seed 1)
  test-clients [name...]   agents and libraries from npm and PyPI, each in a tool loop, and what its turns cost
  test-page [pytest arguments]  the page in a browser (Chromium), with axe's rules for accessibility
  test-routers             four nodes behind HAProxy with docs/haproxy.cfg: warm turns, a node that drains, a node that is killed
  storm [arguments]        hundreds of kills, power cuts and failing disks, every answer compared (--kills 300 --seed 1)
  schemas FOLDER...        test the JSON schema compiler on folders of schemas with instances (--vocabulary FILE.gguf)
  bench [name...]          measure what the documentation claims; without a name, everything
  llama-next ARCHIVE       say which of llmd's changes to llama.cpp fit the version in another archive
  peer                     build llama.cpp's own server and measuring program, for `bench` to compare with
  docs                     man pages and completion for bash, zsh and fish, in build/share
  wheel [architecture...]  wheels for any processor and glibc 2.28 or later, in dist/ (default: x86_64 and aarch64); with
                           LLMD_BACKEND=cuda|hip|vulkan, one for this machine's glibc
  test-wheel [architecture...]  install a wheel outside of the checkout, and chat with it (aarch64: in an emulator)
  deb [architecture...]    a Debian package, in dist/ (default: this architecture)
  test-deb                 install, upgrade, remove and purge the package in a fresh Debian, and chat with it (root)
  test-image               build the image of packaging/Containerfile, and chat with it (root)
  setup                    only set up: private environment, native library, package
  prerequisites            print the Debian packages that are missing
  clean                    remove the build outputs of this checkout (the cache of llama.cpp builds stays)

First time, on Debian:     apt-get install python3 python3-venv python3-dev gcc g++ patch && ./build.sh serve
Then, in another terminal: curl -N http://127.0.0.1:15563/v1/chat/completions -H 'content-type: application/json' \
                             -d '{"messages":[{"role":"user","content":"hello"}],"stream":true,"session_id":"a"}'

Set-up takes 5 to 15 minutes on 2 cores the first time and seconds afterwards. Settings from the environment:
  LLMD_BACKEND=cpu|cuda|hip|vulkan   build this backend instead of the detected one (a GPU is used if its compiler is there, too)
  LLMD_PORTABLE=1                    build for any processor of this architecture, chosen at run time, not for this one
  LLMD_CPU_FEATURES=avx2|avxvnni|avx512|vnni
                                     use no faster instructions than these, although this processor has them: setup, serve,
                                     test, peer and bench then have builds of their own
  LLMD_CUDA_ARCHITECTURES=LIST       GPUs to compile for (default: those in this machine)
  LLMD_CUDA_TOOLKIT=pypi|DIR:DIR...  CUDA's compiler and libraries from PyPI, or from these folders together
  LLMD_CACHE_DIR=DIR                 where llama.cpp builds are kept (default: ~/.cache/llmd)
  LLMD_LLAMA_ARCHIVE=FILE            the archive with llama.cpp, on a machine without a package registry
  LLMD_JOBS=N                        parallel processes of compilers and tests (default: one per core that has 2 GB of memory)
  PYTHON, CC, CXX                    the interpreter and the compilers to use
TEXT
}

# --- messages and steps ----------------------------------------------------------------------------------------------

say() { printf '[llmd] %s\n' "$*" >&2; }

die() {
    printf '[llmd] error: %s\n' "$*" >&2
    exit 1
}

hash_of() { sha256sum | cut -c1-16; }

# stage TITLE COMMAND...: runs the command with its output in a log file. Prints the title, a line from time to time
# while the command runs, and the end of the log if the command fails.
stage() {
    local title=$1 log ticker status
    shift
    mkdir -p "$LOGS"
    log=$LOGS/$(tr -cs 'a-zA-Z0-9.' '-' <<<"${title%%:*}")
    log=${log%-}.log
    say "$title"
    # Closes descriptor 7. Otherwise the ticker's sleep would keep the lock of `locked` after the end of build.sh.
    stage_ticker "$log" "$$" 7>&- &
    ticker=$!
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1
    status=$?
    set -e
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    [ "$status" -eq 0 ] || {
        tail -n 40 "$log" >&2
        die "failed (status $status): $title; the whole log: $log"
    }
}

stage_ticker() {
    local log=$1 parent=$2 every=60 progress
    [ ! -t 2 ] || every=15
    SECONDS=0
    while sleep "$every" && kill -0 "$parent" 2>/dev/null; do
        progress=$(tail -n 1 "$log" 2>/dev/null | grep -o '^\[[0-9]*/[0-9]*\]' || true)
        say "  ... ${SECONDS} s $progress"
    done
}

# once STAMP HASH TITLE COMMAND...: runs the stage, unless its most recent success had the same HASH. The file STAMP
# keeps the hash.
once() {
    local stamp=$1 hash=$2
    shift 2
    [ "$(cat "$stamp" 2>/dev/null)" = "$hash" ] && return 0
    rm -f "$stamp"
    stage "$@"
    mkdir -p "$(dirname "$stamp")"
    echo "$hash" >"$stamp"
}

# --- prerequisites ---------------------------------------------------------------------------------------------------

# Prints the interpreter that the variable PYTHON names, or the first suitable one. Prints nothing if there is none.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
        [ -z "${PYTHON:-}" ] || die "PYTHON=$PYTHON is no Python of 3.11 or later that can be started"
    done
}

# find_compiler VARIABLE PACKAGE...: prints the packages to install if VARIABLE is empty, because no compiler was found.
find_compiler() {
    if [ -z "${!1}" ]; then
        echo "${@:2}"
    else
        command -v "${!1}" >/dev/null || die "$1=${!1} is no program that can be started"
    fi
}

missing_packages() {
    local python
    python=$(find_python) || exit 1 # find_python has printed the reason
    if [ -z "$python" ]; then
        echo python3 python3-venv python3-dev
    else
        "$python" -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
        [ -e "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || echo python3-dev
    fi
    find_compiler CC gcc libc6-dev
    find_compiler CXX g++
    command -v flock >/dev/null || echo util-linux
    command -v tar >/dev/null || echo tar
    command -v patch >/dev/null || echo patch
}

require_prerequisites() {
    local missing
    missing=$(missing_packages | tr '\n' ' ') || exit 1
    [ -z "$missing" ] || die "missing prerequisites (Python must be 3.11 or later); install them with: apt-get install $missing"
    JOBS=${LLMD_JOBS:-$(default_jobs)}
}

default_jobs() {
    local cores memory_gb
    cores=$(nproc)
    memory_gb=$(awk '/^MemTotal/ {print int($2 / 1048576)}' /proc/meminfo)
    echo $((memory_gb / 2 < 1 ? 1 : memory_gb / 2 < cores ? memory_gb / 2 : cores))
}

# --- the private environment -----------------------------------------------------------------------------------------

# setup_environment runtime|test: makes the Python environment, with the pinned packages of this set.
setup_environment() {
    local set=$1
    require_prerequisites
    environment_once "$(find_python)" "private environment: .venv"
    requirements_install build
    requirements_install "$set"
    setup_cmake
}

# environment_once PYTHON TITLE: makes the Python environment PYTHON_ENV with this interpreter, unless it exists.
environment_once() {
    local identity
    identity=$("$1" -c 'import sys; print(sys.version, sys.prefix)' | cat - <(echo "$ROOT") | hash_of)
    once "$PYTHON_ENV/.stamp-python" "$identity" "$2" environment_create "$1"
}

environment_create() {
    rm -rf "$PYTHON_ENV"
    "$1" -m venv "$PYTHON_ENV"
}

requirements_install() {
    local file=$ROOT/requirements/$1.txt
    once "$PYTHON_ENV/.stamp-$1" "$(hash_of <"$file")" "python packages ($1): pinned and hash-checked" \
        "$PYTHON_ENV/bin/python" -m pip install --disable-pip-version-check --require-hashes -r "$file"
}

# Uses the system's cmake and ninja if they are new enough. Otherwise installs pinned versions in the environment.
setup_cmake() {
    CMAKE=$(command -v cmake || true)
    NINJA=$(command -v ninja || command -v ninja-build || true)
    if [ -z "$NINJA" ] || [ -z "$CMAKE" ] || ! version_at_least 3.20 "$("$CMAKE" --version | awk 'NR == 1 {print $3}')"; then
        requirements_install cmake
        CMAKE=$PYTHON_ENV/bin/cmake
        NINJA=$PYTHON_ENV/bin/ninja
    fi
}

version_at_least() { printf '%s\n%s\n' "$1" "$2" | sort -V -C; }

setup_package() {
    once "$PYTHON_ENV/.stamp-package" "$(package_identity)" "package: llmd, editable" \
        "$PYTHON_ENV/bin/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e "$ROOT"
}

package_identity() { cat "$ROOT"/{setup.cfg,setup.py,pyproject.toml} "$PACKAGE/__init__.py" | hash_of; }

# --- the native library ----------------------------------------------------------------------------------------------

# native_build NAME LLAMA_VARIANT TARGETS [cmake arguments]: builds libllm in build/NAME, with the llama.cpp build
# LLAMA_VARIANT. The target `package` has the files that Python loads. `all` adds the programs for tests and benchmarks.
native_build() {
    local name=$1 llama=$2 targets=$3
    shift 3
    llama_ensure "$llama"
    local directory=$BUILD/$name configure hash
    configure=(-G Ninja -S "$ROOT" -B "$directory" "-DCMAKE_MAKE_PROGRAM=$NINJA" "-DCMAKE_C_COMPILER=$CC" "-DCMAKE_CXX_COMPILER=$CXX"
        "-DLLM_LLAMA_PREFIX=$LLAMA_PREFIX" "-DPython_EXECUTABLE=$PYTHON_ENV/bin/python" "-DLLM_VARIANT=$llama" "$@")
    hash=$(printf '%s\n' "${configure[@]}" "$("$CC" --version)" "$("$CXX" --version)" | hash_of)
    once "$directory/.stamp-configure" "$hash" "libllm ($name): configure" native_configure "$directory" "${configure[@]}"
    # shellcheck disable=SC2086  # a list
    stage "libllm ($name): build" "$CMAKE" --build "$directory" --parallel "$JOBS" --target $targets
}

native_configure() {
    rm -rf "$1"
    shift
    "$CMAKE" "$@"
}

# Copies the library and its Python module to the folder in which the Python package looks for VARIANT. Files are
# replaced by rename, so a running daemon keeps its old files.
native_install() {
    local from=$BUILD/$1/package to=$PACKAGE/_native/$2 file
    mkdir -p "$to"
    for file in "$from"/*; do
        cmp -s "$file" "$to/${file##*/}" && continue
        cp "$file" "$to/.incoming"
        mv "$to/.incoming" "$to/${file##*/}"
    done
    for file in "$to"/*; do
        [ -e "$from/${file##*/}" ] || rm -f "$file"
    done
}

# setup_native package|all: builds and installs the library, unless the stamp shows that nothing has changed.
setup_native() {
    local name identity stamp
    name=$(native_name)
    identity=$(native_identity)
    stamp=$(native_stamp)
    native_build "$name" "$name" "$1"
    rm -f "$stamp"
    native_install "$name" "$(native_folder)"
    echo "$identity" >"$stamp"
}

native_name() { [ -z "${LLMD_PORTABLE:-}" ] && native_folder || echo portable; }

# The folder in which the Python package looks for the library. A portable build replaces the native one.
native_folder() { echo "native${LLMD_CPU_FEATURES:+-$LLMD_CPU_FEATURES}"; }

native_stamp() { echo "$PACKAGE/_native/.stamp${LLMD_CPU_FEATURES:+-$LLMD_CPU_FEATURES}"; }

# Prints a hash of everything on which the library depends: its sources, llama.cpp, compilers, processor and settings.
native_identity() {
    {
        llama_plan "$(native_name)"
        echo "$LLAMA_DESCRIPTION"
        in_root find include libllm cmake CMakeLists.txt requirements/build.txt daemon/llmd/__init__.py \
            daemon/llmd/engine/_native_build.py -type f -print0 | sort -z | (in_root xargs -0 sha256sum)
    } | hash_of
}

# setup_exact [PROCESSOR]: makes the exact build, in which results have the same bits in any batch. By default for this
# processor.
setup_exact() {
    local name=exact${1:+-$1}
    native_build "$name" "$name" "package logits_probe test_model_llama test_model_llama_mixed test_model_llama_state test_engine_drafts"
    native_install "$name" "$name"
}

# --- C tests ---------------------------------------------------------------------------------------------------------

# run_c_tests DIRECTORY [--without PROGRAM]... [--only PROGRAM]... [wrapper]: runs the test programs, C_TEST_JOBS at a
# time, because most programs use only one core. Prints a line for each. Fails if a program fails.
run_c_tests() {
    local directory=$1 jobs=${C_TEST_JOBS:-${LLMD_JOBS:-$(default_jobs)}} program results passed failed without=" " only=" "
    shift
    while [[ ${1:-} == --without || ${1:-} == --only ]]; do
        [ "$1" = --only ] && only+="$2 " || without+="$2 "
        shift 2
    done
    mkdir -p "$LOGS"
    results=$LOGS/$(basename "$directory")-tests.results
    : >"$results"
    for program in "$directory"/tests/test_*; do
        # Skips programs whose source was deleted.
        [ -x "$program" ] && [ -e "$ROOT/tests/c/${program##*/}.c" ] || continue
        [[ $only == " " || $only == *" ${program##*/} "* ]] || continue
        if [[ $without == *" ${program##*/} "* ]]; then
            say "  left out: ${program##*/} ($(basename "$directory"))"
            continue
        fi
        while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do wait -n || true; done
        run_c_test "$program" "$@" >>"$results" &
    done
    wait
    passed=$(grep -c '^passed' "$results" || true)
    failed=$(grep -c '^FAILED' "$results" || true)
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

# run_c_test PROGRAM [wrapper]: runs one program. Prints `passed` or `FAILED` with its name to standard output, and a
# line for the user, with the end of the log if it failed.
run_c_test() {
    local program=$1 variant log result=passed
    shift
    variant=$(basename "$(dirname "$(dirname "$program")")")
    log=$LOGS/$variant-${program##*/}.log
    (cd "$ROOT" && LLMD_TEST_MODELS=$BUILD/models timeout "${C_TEST_SECONDS:-600}" "$@" "$program") >"$log" 2>&1 || result=FAILED
    echo "$result ${program##*/}"
    if [ "$result" = passed ]; then
        say "  passed: ${program##*/} ($variant)"
    else
        say "$(tail -n 60 "$log")"$'\n'"  FAILED: ${program##*/} ($variant), log: $log"
    fi
}

# run_quantized_tests DIRECTORY: runs the tests of models' states with quantized keys and values.
run_quantized_tests() {
    local -a only
    read -r -d '' -a only < <(printf -- '--only %s\n' "${KV_TESTS[@]}") || true
    LLMD_TEST_KV_TYPE=q8_0 run_c_tests "$1" "${only[@]}"
}

KV_TESTS=(test_model_llama test_model_llama_state test_model_llama_mixed test_model_llama_pages test_model_llama_shared test_pool)
DEVICE_TESTS=(test_model_llama test_model_llama_state test_model_llama_mixed test_pool test_offload test_device_full)

# run_device_tests DIRECTORY DEVICE: runs the tests of models' states with all layers on a device. DEVICE is a part of
# the device's name.
run_device_tests() {
    local -a only
    read -r -d '' -a only < <(printf -- '--only %s\n' "${DEVICE_TESTS[@]}") || true
    # A software device takes minutes to compile its shaders, for each program and kind of memory. Programs run one at a
    # time, because together they could exceed the device's memory.
    C_TEST_JOBS=1 C_TEST_SECONDS=3600 LLMD_TEST_DEVICE=$2 run_c_tests "$1" "${only[@]}"
}

sanitizer_build() {
    setup_environment test
    setup_models
    native_build "$1" native all -DLLM_SANITIZE="$2" "${@:3}"
}

# --- one at a time ---------------------------------------------------------------------------------------------------

# Two build.sh in one checkout must not build at the same time, because they share directories. The programs that they
# start after the build can run at the same time.
locked() {
    mkdir -p "$BUILD"
    (
        if ! flock -n 7; then
            say "waiting for another build.sh in this checkout"
            flock 7
        fi
        "$@"
    ) 7>"$BUILD/.lock"
}

# --- verbs -----------------------------------------------------------------------------------------------------------

# If everything is set up, this does not wait for another build.sh that is building in this checkout.
verb_setup() { is_set_up || locked prepare_serve; }

is_set_up() {
    [ -x "$PYTHON_ENV/bin/llmd" ] && has_models &&
        [ "$(cat "$PYTHON_ENV/.stamp-runtime" 2>/dev/null)" = "$(hash_of <"$ROOT/requirements/runtime.txt")" ] &&
        [ "$(cat "$PYTHON_ENV/.stamp-package" 2>/dev/null)" = "$(package_identity)" ] &&
        [ "$(cat "$(native_stamp)" 2>/dev/null)" = "$(native_identity)" ]
}

prepare_serve() {
    setup_environment runtime
    setup_native package
    setup_package
    has_models || setup_models
}

# Whether the checkout contains a model. Without one, a tiny generated model is served.
has_models() { compgen -G "$PACKAGE/data/*.gguf" >/dev/null; }

verb_serve() {
    verb_setup
    exec "$PYTHON_ENV/bin/llmd" "$@"
}

# Generates the tiny models that tests load. The generator finds out which models are outdated.
setup_models() {
    local hash
    [ -d "$ROOT/tools/tiny_models" ] || return 0
    hash=$(cat "$ROOT"/tools/tiny_models/*.py "$ROOT/requirements/test.txt" | hash_of)
    requirements_install test
    once "$BUILD/models/.stamp" "$hash" "tiny models: build/models" in_root "$PYTHON_ENV/bin/python" -m tools.tiny_models --out "$BUILD/models"
}

in_root() { (cd "$ROOT" && "$@"); }

# Tests read templates, defaults and tokenizers from llama.cpp's original source. If the builds came from the cache, the
# source may be missing.
link_llama_source() {
    llama_source
    ln -sfn "$LLAMA_ORIGINAL" "$BUILD/llama.cpp"
}

prepare_test() {
    setup_environment test
    setup_native all
    # shellcheck disable=SC2086  # no argument, or one
    setup_exact ${LLMD_CPU_FEATURES:-}
    setup_package
    setup_models
    link_llama_source
}

prepare_bench() {
    setup_environment test
    setup_native all
    setup_package
    setup_models
    link_llama_source
}

prepare_storm() {
    prepare_bench
    setup_exact
}

prepare_check() {
    setup_environment test
    setup_native package
    setup_package
}

verb_test() {
    local native device exact=exact${LLMD_CPU_FEATURES:+-$LLMD_CPU_FEATURES}
    native=$BUILD/$(native_name)
    locked prepare_test
    device=$(test_device)
    run_c_tests "$native"
    run_quantized_tests "$native"
    LLMD_TEST_EXACT=1 run_c_tests "$BUILD/$exact"
    local -x LLMD_TEST_EXACT_VARIANT=${LLMD_TEST_EXACT_VARIANT:-$exact}
    [ -z "$device" ] || run_device_tests "$native" "$device"
    # shellcheck disable=SC2046  # options
    in_root env ${device:+"LLMD_TEST_DEVICE=$device"} "$PYTHON_ENV/bin/python" -m pytest $([ -n "$device" ] || side_by_side) "$@"
}

# Prints pytest's options for parallel tests: the number of processes is that of compilers, and each process runs whole
# files. Not used with a device, whose memory would be too small for several processes.
side_by_side() { echo --numprocesses "${LLMD_JOBS:-$(default_jobs)}" --dist loadfile; }

# Prints a part of the name of the GPU for which the build is. Prints nothing for a CPU build.
test_device() {
    case $(llama_backend native) in
    cuda) ! cuda_driver_is_there || echo CUDA ;;
    hip) echo ROCm ;;
    vulkan) echo Vulkan ;;
    esac
}

# Tests the Vulkan backend on any machine, with a software device. This is slow, but finds the same errors: the device's
# memory is separate from host memory.
verb_test_vulkan() {
    vulkan_require test-vulkan lavapipe
    locked prepare_vulkan
    local -x VK_DRIVER_FILES VK_ICD_FILENAMES GGML_VK_VISIBLE_DEVICES=0 LLMD_TEST_DEVICE=llvmpipe LLMD_LIBLLM_VARIANT=vulkan
    VK_DRIVER_FILES=$(vulkan_lavapipe)
    VK_ICD_FILENAMES=$VK_DRIVER_FILES # name of the variable before Vulkan 1.3.207
    run_device_tests "$BUILD/vulkan" llvmpipe
    in_root "$PYTHON_ENV/bin/python" -m pytest tests/live -k 'not to_the_bit' --timeout 900 "$@"
}

prepare_vulkan() {
    setup_environment test
    LLMD_BACKEND=vulkan LLMD_PORTABLE='' LLAMA_LAVAPIPE=1 native_build vulkan native "package logits_probe ${DEVICE_TESTS[*]}"
    native_install vulkan vulkan
    setup_package
    setup_models
}

# Processors with fewer instructions add up numbers in another order, and round differently. So bit-exact results must
# be tested for each kind of processor.
verb_test_processors() {
    local processor
    locked prepare_processors
    for processor in "${LLAMA_PROCESSORS[@]}"; do
        if ! llama_processor_has "$processor"; then
            say "left out: this processor has no $processor"
            continue
        fi
        LLMD_TEST_EXACT=1 run_c_tests "$BUILD/exact-$processor"
        LLMD_TEST_EXACT_VARIANT=exact-$processor in_root "$PYTHON_ENV/bin/python" -m pytest tests/live/test_warm_logits.py -k to_the_bit "$@"
    done
}

# Runs the C tests for another architecture, with Debian's cross compiler and libraries and an emulator. The daemon
# is not tested, because Python for this architecture is not available here. test-wheel tests it.
verb_test_aarch64() {
    local emulator=(qemu-aarch64-static -cpu max -L /usr/aarch64-linux-gnu) CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ only=() name
    { command -v "$CC" && command -v "$CXX" && command -v "${emulator[0]}"; } >/dev/null ||
        die "test-aarch64 needs a compiler and an emulator; install them with: apt-get install g++-aarch64-linux-gnu qemu-user-static"
    for name; do only+=(--only "$name"); done
    locked prepare_aarch64 "${*:-$(cd "$ROOT/tests/c" && basename -s .c test_*.c | tr '\n' ' ')}"
    C_TEST_SECONDS=3600 run_c_tests "$BUILD/native-aarch64" "${only[@]}" "${emulator[@]}"
}

# prepare_aarch64 PROGRAMS: PROGRAMS is one argument with all names.
prepare_aarch64() {
    setup_environment test
    setup_models
    # The headers are given here, because cmake does not look for Python's headers in a build for another architecture.
    # shellcheck disable=SC2046  # options
    LLMD_BACKEND=cpu native_build native-aarch64 native-aarch64 "$1" $(wheel_flags aarch64) \
        "-DPython_INCLUDE_DIR=$("$PYTHON_ENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
}

prepare_processors() {
    local processor
    setup_environment test
    setup_native package
    setup_package
    setup_models
    for processor in "${LLAMA_PROCESSORS[@]}"; do
        ! llama_processor_has "$processor" || setup_exact "$processor"
    done
}

# Runs the tests with the oldest versions of the packages that a wheel allows, in a separate environment. Three kinds of
# tests are left out: tests that need packages for development, tests that need a native test program, and tests of code
# that uses no package (llmctl, libllm, the sources).
verb_test_lowest() {
    locked prepare_lowest
    local left_out=(
        tests/live tests/real_templates tests/test_{bench,tiny_models,demo_model_data,start,structure,documented,manual,memory_kinds,schema,schema_corpus,tokenizers}.py
    )
    # shellcheck disable=SC2046  # options
    in_root env PYTHONPATH="$ROOT/daemon" "$BUILD/lowest/bin/python" -m pytest $(side_by_side) -m "not live" \
        "${left_out[@]/#/--ignore=}" --ignore-glob='tests/test_ctl*' "$@"
}

prepare_lowest() {
    setup_environment runtime
    setup_native package
    link_llama_source
    local PYTHON_ENV=$BUILD/lowest
    environment_once "$(find_python)" "environment with the lowest versions: build/lowest"
    requirements_install lowest
}

verb_check() {
    local bin=$PYTHON_ENV/bin tool failed=()
    locked prepare_check
    for tool in check_ruff check_format check_types check_c_format check_shell check_structure; do
        in_root "$tool" "$bin" || failed+=("${tool#check_}")
    done
    [ "${#failed[@]}" -eq 0 ] || die "check failed: ${failed[*]} (./build.sh format repairs what is only layout)"
    say "check passed"
}

check_ruff() { "$1/ruff" check --output-format concise .; }
check_format() { "$1/ruff" format --check --quiet .; }
check_types() { "$1/mypy"; }
check_structure() { "$1/python" -m pytest -q tests/test_structure.py; }
check_shell() { ! command -v shellcheck >/dev/null || shellcheck -x build.sh cmake/gpu.sh cmake/llama.sh cmake/peer.sh packaging/*.sh packaging/debian/{postinst,prerm,postrm} .ci/run; }

check_c_format() {
    local file status=0
    while read -r -d '' file; do
        "$1/clang-format" "$file" | cmp -s - "$file" || {
            echo "not formatted: ${file#"$ROOT"/}"
            status=1
        }
    done < <(c_sources)
    return "$status"
}

verb_format() {
    locked setup_environment test
    in_root "$PYTHON_ENV/bin/ruff" check --fix-only .
    in_root "$PYTHON_ENV/bin/ruff" format .
    c_sources | xargs -0 "$PYTHON_ENV/bin/clang-format" -i
}

c_sources() {
    local directories=() directory
    for directory in include libllm tests/c tests/fuzz tests/schemas bench cmake packaging; do
        [ ! -d "$ROOT/$directory" ] || directories+=("$ROOT/$directory")
    done
    find "${directories[@]}" \( -name '*.c' -o -name '*.h' -o -name '*.cpp' \) -print0
}

verb_asan() {
    locked sanitizer_build asan address,undefined
    # test_answer_cost takes minutes, and runs the same code as test_answer_parser.
    C_TEST_SECONDS=1800 ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1 \
        run_c_tests "$BUILD/asan" --without test_answer_cost
}

# Older thread sanitizers fail with the address randomization of recent kernels. setarch turns it off.
verb_tsan() {
    locked sanitizer_build tsan thread
    # These tests are long and have no concurrent threads, so they are left out. In one of them, a recursive template
    # makes the sanitizer use 15 GB of memory.
    local -a one_thread=(
        --without test_chat_hostile --without test_pattern_split --without test_tokenizer
        --without test_answer_parser --without test_answer_cost --without test_sampler_reference
    )
    C_TEST_SECONDS=1800 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
        run_c_tests "$BUILD/tsan" "${one_thread[@]}" setarch "$(uname -m)" -R
}

verb_fuzz() {
    local name seconds=${LLMD_FUZZ_SECONDS:-20} program corpus names
    if fuzzer_has_libfuzzer; then
        locked sanitizer_build fuzz address,undefined -DLLM_FUZZ=libfuzzer \
            "-DCMAKE_C_COMPILER=$(command -v clang)" "-DCMAKE_CXX_COMPILER=$(command -v clang++)"
    else
        say "no clang with libFuzzer (apt-get install clang libclang-rt-dev): using the bundled mutation driver"
        locked sanitizer_build fuzz address,undefined -DLLM_FUZZ=driver
    fi
    names=("$@")
    [ "$#" -gt 0 ] || names=("$BUILD"/fuzz/fuzz/fuzz_*)
    for name in "${names[@]##*/}"; do
        program=$BUILD/fuzz/fuzz/$name
        [ -x "$program" ] || die "no fuzzer $name; there are: $(cd "$BUILD/fuzz/fuzz" && echo fuzz_*)"
        say "fuzzing $name for $seconds s"
        corpus=$BUILD/fuzz/corpus/$name
        # libFuzzer continues with the inputs that it found earlier. It needs no other seeds, because the fuzzers make valid
        # inputs.
        mkdir -p "$corpus"
        (cd "$BUILD/fuzz" && "$program" -max_total_time="$seconds" "$corpus")
    done
}

fuzzer_has_libfuzzer() {
    command -v clang++ >/dev/null || return 1
    echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }' |
        clang++ -x c++ -fsanitize=fuzzer,address -o /dev/null - 2>/dev/null
}

verb_soak() {
    locked prepare_bench
    in_root "$PYTHON_ENV/bin/python" -m tests.soak "$@"
}
verb_test_clients() {
    locked prepare_check
    in_root "$PYTHON_ENV/bin/python" -m tests.clients "$@"
}

# Uses the system's browser. The Python package that controls the browser is in a separate environment, because it would
# change mypy's results in .venv.
verb_test_page() {
    local -a missing=()
    command -v chromium >/dev/null || missing+=(chromium)
    command -v chromedriver >/dev/null || missing+=(chromium-driver)
    [ "${#missing[@]}" -eq 0 ] || die "test-page needs a browser and its driver; install them with: apt-get install ${missing[*]}"
    locked prepare_page
    in_root env PYTHONPATH="$ROOT/daemon" "$BUILD/page/bin/python" -m pytest tests/page "$@"
}

verb_test_routers() {
    command -v haproxy >/dev/null || die "test-routers needs HAProxy; install it with: apt-get install haproxy"
    locked prepare_check
    in_root "$PYTHON_ENV/bin/python" -m pytest tests/routers "$@"
}

prepare_page() {
    setup_environment runtime
    setup_native package
    local PYTHON_ENV=$BUILD/page
    environment_once "$(find_python)" "environment of the page's tests: build/page"
    requirements_install page
}

verb_storm() {
    locked prepare_storm
    in_root "$PYTHON_ENV/bin/python" -m tests.crash "$@"
}
verb_schemas() {
    locked prepare_schemas
    in_root "$PYTHON_ENV/bin/python" -m tests.schemas "$@"
}

prepare_schemas() {
    setup_environment runtime
    native_build native native corpus_driver
}

# Building llama.cpp's programs has its own lock, so other verbs in this checkout do not wait for it.
verb_peer() {
    locked setup_environment runtime
    require_prerequisites
    setup_cmake
    peer_ensure
    echo "$PEER_PREFIX/bin"
}

verb_llama_next() {
    [ $# -eq 1 ] && [ -f "$1" ] || die "usage: ./build.sh llama-next ARCHIVE"
    llama_next "$1"
}

verb_bench() {
    locked prepare_bench
    peer_plan
    in_root env LLMD_BENCH_PEER="${LLMD_BENCH_PEER:-$PEER_PREFIX/bin}" "$PYTHON_ENV/bin/python" -m bench "$@"
}

verb_docs() {
    locked make_docs
    say "in build/share; to read: man -l build/share/man/man1/llmctl.1; to install: cp -r build/share/. ~/.local/share/"
}

make_docs() {
    setup_environment runtime
    write_docs "$BUILD/share"
}

# write_docs DIRECTORY: writes the files that an installation has under share/.
write_docs() {
    rm -rf "$1"
    stage "man pages and completion" in_root env PYTHONPATH="$ROOT/daemon" "$PYTHON_ENV/bin/python" -m tools.manual --out "$1"
}

verb_wheel() { locked make_wheels "$@"; }

verb_test_wheel() {
    locked setup_environment runtime
    [ $# -gt 0 ] || set -- "${WHEEL_ARCHITECTURES[@]}"
    local architecture
    for architecture; do wheel_try "$architecture"; done
}

verb_deb() { locked make_debs "$@"; }

verb_test_deb() { deb_try; }

verb_test_image() { image_try; }

# make_wheels [ARCHITECTURE...]: makes a wheel for each architecture, by default for all. With LLMD_BACKEND, makes one
# wheel, for this machine's architecture and glibc.
make_wheels() {
    local architecture
    [ $# -gt 0 ] || set -- "${WHEEL_ARCHITECTURES[@]}"
    setup_environment runtime
    rm -rf "$BUILD/wheels"
    mkdir -p "$BUILD/wheels"
    if [ -n "${LLMD_BACKEND:-}" ]; then
        native_build portable portable package
        make_wheel portable ''
    else
        for architecture; do wheel_make "$architecture"; done
    fi
    mkdir -p "$ROOT/dist"
    mv "$BUILD"/wheels/*.whl "$ROOT/dist/"
    ls -l "$ROOT"/dist/*.whl
}

# make_wheel BUILD PLATFORM [STRIP]: makes a wheel in build/wheels from the library in build/BUILD. If PLATFORM is
# empty, the wheel is for this machine.
make_wheel() {
    local build=$1 platform=$2 strip=${3:-strip} staging=$BUILD/wheel
    rm -rf "$staging"
    mkdir -p "$staging"
    cp "$ROOT"/{setup.cfg,setup.py,pyproject.toml,LICENSE,README.md} "$staging/"
    mkdir "$staging/daemon"
    (cd "$ROOT/daemon" && tar -c --exclude=_native --exclude=__pycache__ --exclude='*.egg-info' llmd) | tar -x -C "$staging/daemon"
    mkdir -p "$staging/daemon/llmd/_native/native"
    cp "$BUILD/$build"/package/* "$staging/daemon/llmd/_native/native/"
    "$strip" --strip-unneeded "$staging"/daemon/llmd/_native/native/*.so*
    llama_notices "$staging"
    write_docs "$staging/share"
    stage "wheel: ${platform:-this machine}" env LLMD_WHEEL_PLATFORM="$platform" "$PYTHON_ENV/bin/python" -m pip wheel \
        --disable-pip-version-check --no-deps --no-build-isolation -w "$BUILD/wheels" "$staging"
}

verb_prerequisites() { missing_packages | tr '\n' ' '; }

verb_clean() {
    rm -rf "$BUILD" "$PYTHON_ENV" "$PACKAGE/_native" "$ROOT/dist" "$ROOT"/daemon/*.egg-info
    say "cleaned; llama.cpp builds stay in $LLAMA_CACHE"
}

main() {
    local verb=${1:---help}
    llama_features_check
    case $verb in
    -h | --help | help) usage ;;
    serve | test | test-vulkan | test-processors | test-aarch64 | test-lowest | test-clients | test-page | test-routers | check | format | asan | tsan | fuzz | soak | storm | schemas | bench | peer | llama-next | docs | wheel | test-wheel | deb | test-deb | test-image | setup | prerequisites | clean)
        shift
        "verb_${verb//-/_}" "$@"
        ;;
    *)
        usage >&2
        die "no such verb: $verb"
        ;;
    esac
}

# shellcheck source=cmake/gpu.sh
. "$ROOT/cmake/gpu.sh"
# shellcheck source=cmake/llama.sh
. "$ROOT/cmake/llama.sh"
# shellcheck source=cmake/peer.sh
. "$ROOT/cmake/peer.sh"
# shellcheck source=packaging/wheel.sh
. "$ROOT/packaging/wheel.sh"
# shellcheck source=packaging/deb.sh
. "$ROOT/packaging/deb.sh"
# shellcheck source=packaging/image.sh
. "$ROOT/packaging/image.sh"
main "$@"
