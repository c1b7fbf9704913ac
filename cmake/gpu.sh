# shellcheck shell=bash
# Finds the compilers, headers and libraries that builds for GPUs need, and reports what is missing. Sourced by build.sh
# before llama.sh.

MACHINE= # tests set this to a folder that replaces the root directory /

# --- Vulkan ----------------------------------------------------------------------------------------------------------

# vulkan_missing [lavapipe]: prints the Debian packages that are missing for a Vulkan build. With `lavapipe`, also those
# for Mesa's software renderer.
vulkan_missing() {
    if [ -z "${VULKAN_SDK:-}" ]; then
        [ -e "$MACHINE/usr/include/vulkan/vulkan.h" ] || echo libvulkan-dev
        compgen -G "$MACHINE/usr/*/cmake/SPIRV-Headers" >/dev/null || echo spirv-headers
    fi
    command -v glslc >/dev/null || echo glslc
    [ "${1:-}" != lavapipe ] || [ -n "$(vulkan_lavapipe)" ] || echo mesa-vulkan-drivers
}

# Prints the path of the JSON file that describes lavapipe, Mesa's Vulkan driver that computes on the CPU.
vulkan_lavapipe() { compgen -G "$MACHINE/usr/share/vulkan/icd.d/lvp_icd*.json" | head -n 1; }

# vulkan_require WHO [lavapipe]: ends build.sh with an error if packages are missing. WHO is the verb or setting that
# needs them.
vulkan_require() {
    local who=$1 missing
    missing=$(vulkan_missing "${@:2}" | tr '\n' ' ')
    [ -z "$missing" ] || die "$who needs packages that are not here; install them with: apt-get install $missing"
}

# --- CUDA: NVIDIA's compiler, runtime and cuBLAS: found on this machine, joined from folders, or installed from PyPI
# ----

# Whether NVIDIA's driver is installed: a device file exists, or nvidia-smi lists a GPU (in some containers there are no
# device files).
cuda_driver_is_there() { [ -e "$MACHINE/dev/nvidia0" ] || nvidia-smi -L >/dev/null 2>&1; }

# Prints the folder for the toolkit that LLMD_CUDA_TOOLKIT describes. Fails if LLMD_CUDA_TOOLKIT is not set.
cuda_toolkit() {
    case ${LLMD_CUDA_TOOLKIT:-} in
    '') return 1 ;;
    pypi) echo "$LLAMA_CACHE/cuda-pypi-$(hash_of <"$ROOT/requirements/cuda.txt")" ;;
    *) echo "$LLAMA_CACHE/cuda-joined-$(hash_of <<<"$LLMD_CUDA_TOOLKIT")" ;;
    esac
}

# Makes the toolkit that LLMD_CUDA_TOOLKIT describes, if it does not exist yet. Called before a CUDA build is planned.
cuda_toolkit_ensure() {
    local toolkit
    toolkit=$(cuda_toolkit) || return 0
    [ ! -d "$toolkit" ] || return 0
    mkdir -p "$LLAMA_CACHE"
    if [ "$LLMD_CUDA_TOOLKIT" = pypi ]; then
        stage "CUDA's compiler and libraries from PyPI: 0.5 GB, pinned and hash-checked" cuda_toolkit_make "$toolkit"
    else
        stage "CUDA toolkit: $LLMD_CUDA_TOOLKIT" cuda_toolkit_make "$toolkit"
    fi
}

# cuda_toolkit_make TOOLKIT: makes the folder TOOLKIT with bin, include, lib and nvvm. The folder gets its name at the
# end, so it is never incomplete.
cuda_toolkit_make() {
    local toolkit=$1 part parts
    (
        flock 8
        [ ! -d "$toolkit" ] || exit 0
        work=$(mktemp -d "$toolkit.work.XXXXXX") # not local: the trap outlives this function
        trap 'rm -rf "$work"' EXIT
        mkdir -p "$work/tree"/{bin,include,lib,nvvm}
        if [ "$LLMD_CUDA_TOOLKIT" = pypi ]; then
            "$PYTHON_ENV/bin/python" -m pip install --disable-pip-version-check --no-deps --require-hashes \
                --only-binary :all: --target "$work/packages" -r "$ROOT/requirements/cuda.txt"
            cuda_join "$work/tree" "$work"/packages/nvidia/cu* 'cp -r'
        else
            IFS=: read -r -a parts <<<"$LLMD_CUDA_TOOLKIT"
            for part in "${parts[@]}"; do
                [ -d "$part" ] || die "LLMD_CUDA_TOOLKIT: $part is no folder"
                cuda_join "$work/tree" "$(cd "$part" && pwd)" 'cp -rsf'
            done
        fi
        cuda_linker_names "$work/tree/lib"
        ln -s lib "$work/tree/lib64"
        mv "$work/tree" "$toolkit"
    ) 8>"$toolkit.lock"
}

# cuda_join TREE FOLDER COPY: copies a toolkit's parts from FOLDER to TREE with the command COPY. Libraries from lib64
# go to lib.
cuda_join() {
    local tree=$1 from=$2 copy=$3 part
    for part in bin include nvvm lib lib64; do
        # shellcheck disable=SC2086  # a command and its options
        [ ! -d "$from/$part" ] || $copy "$from/$part/." "$tree/${part%64}/"
    done
}

# Makes the names without a version (libX.so), which the linker needs. NVIDIA's Python packages have only names with a
# version (libX.so.12).
cuda_linker_names() {
    local library
    for library in "$1"/lib*.so.*; do
        [ ! -e "$library" ] || [ -e "${library%%.so.*}.so" ] || ln -s "${library##*/}" "${library%%.so.*}.so"
    done
}

cuda_compiler() {
    local toolkit
    if toolkit=$(cuda_toolkit); then
        [ -x "$toolkit/bin/nvcc" ] && echo "$toolkit/bin/nvcc"
    else
        command -v nvcc || { [ -x "$MACHINE/usr/local/cuda/bin/nvcc" ] && echo "$MACHINE/usr/local/cuda/bin/nvcc"; }
    fi
}

cuda_has_cublas() { "$1" -x cu -E - <<<'#include <cublas_v2.h>' >/dev/null 2>&1; }

cuda_is_complete() {
    local compiler
    compiler=$(cuda_compiler) && cuda_has_cublas "$compiler"
}

# Prints for people which parts of CUDA this machine has.
cuda_findings() {
    local compiler driver
    if ! compiler=$(cuda_compiler); then
        compiler="no compiler (nvcc)"
    elif cuda_has_cublas "$compiler"; then
        compiler="a compiler with cuBLAS ($compiler)"
    else
        compiler="a compiler ($compiler) without cuBLAS"
    fi
    cuda_driver_is_there && driver="an NVIDIA driver" || driver="no NVIDIA driver"
    echo "$driver, $compiler"
}

# Ends build.sh with an error and advice if a CUDA build is not possible.
cuda_require() {
    cuda_is_complete || die "LLMD_BACKEND=cuda needs NVIDIA's compiler and cuBLAS; here: $(cuda_findings). Install them with" \
        "apt-get install nvidia-cuda-toolkit (Debian's non-free), or set LLMD_CUDA_TOOLKIT=pypi (0.5 GB of Python packages)," \
        "or LLMD_CUDA_TOOLKIT=FOLDER:FOLDER to where they are"
    cuda_driver_is_there || [ -n "${LLMD_CUDA_ARCHITECTURES:-}${LLMD_PORTABLE:-}" ] ||
        die "LLMD_BACKEND=cuda compiles for the GPUs of this machine; here: $(cuda_findings). Install NVIDIA's driver, or name" \
            "the GPUs to compile for: LLMD_CUDA_ARCHITECTURES=90 (H100), 89 (RTX 40), 86 (RTX 30), 120 (RTX 50)"
}

# Tells the user if the machine has a GPU, but no compiler for it. Otherwise nobody would notice that the GPU stays
# unused.
cuda_hint() {
    ! cuda_driver_is_there || cuda_is_complete ||
        say "an NVIDIA GPU stays unused: $(cuda_findings); LLMD_BACKEND=cuda says what to install"
}

cuda_flags() {
    local toolkit
    # cublas is linked dynamically: its static form would add hundreds of megabytes to libllm.
    echo "-DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF -DCMAKE_CUDA_COMPILER=$(cuda_compiler)"
    # The nvcc of a Linux distribution chooses an older g++ that it supports. So it gets $CXX only if the user has set
    # CXX, or if the toolkit comes from elsewhere.
    [ -z "${LLMD_CUDA_TOOLKIT:-}${CXX_ASKED:-}" ] || echo "-DCMAKE_CUDA_HOST_COMPILER=$CXX"
    ! toolkit=$(cuda_toolkit) || echo "-DCUDAToolkit_ROOT=$toolkit"
    # Without this setting, ggml compiles for the GPUs of this machine, if this version of cmake can find them.
    [ -z "${LLMD_CUDA_ARCHITECTURES:-}" ] || echo "-DCMAKE_CUDA_ARCHITECTURES=$LLMD_CUDA_ARCHITECTURES"
    # If NVIDIA's packages with CUDA's libraries are installed, their folder is next to that of llmd's wheel.
    [ -z "${LLMD_PORTABLE:-}" ] || echo "-DCMAKE_INSTALL_RPATH=\$ORIGIN;\$ORIGIN/../../../nvidia/cu13/lib"
}

# Prints everything else that a CUDA build depends on: the compiler's version, the code for driver calls, and the GPUs
# for which it compiles.
cuda_identity() {
    "$(cuda_compiler)" --version | tail -n 1
    hash_of <"$ROOT/cmake/cuda_driver.c"
    [ -n "${LLMD_CUDA_ARCHITECTURES:-}${LLMD_PORTABLE:-}" ] ||
        nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true
}

# cuda_driver_calls ARCHIVE: compiles the functions that replace those of NVIDIA's driver, and load the driver at the
# first call. So libllm can be loaded without a driver, and then reports that there is no GPU.
cuda_driver_calls() {
    local include
    include=$(cuda_compiler)
    include=${include%/bin/nvcc}/include
    "$CC" -O2 -fPIC -fvisibility=hidden -Wall -Wextra -I"$include" -c "$ROOT/cmake/cuda_driver.c" -o "$1.o"
    ar rcs "$1" "$1.o"
}
