# shellcheck shell=bash
# What builds for GPUs need of the machine, and what to say when it is not there. Sourced by build.sh before llama.sh.

MACHINE= # a folder that stands for the root, in tests

# --- Vulkan ----------------------------------------------------------------------------------------------------------

# vulkan_missing [lavapipe]: Debian's packages that a Vulkan build lacks, and those for a device of software.
vulkan_missing() {
    if [ -z "${VULKAN_SDK:-}" ]; then
        [ -e "$MACHINE/usr/include/vulkan/vulkan.h" ] || echo libvulkan-dev
        compgen -G "$MACHINE/usr/*/cmake/SPIRV-Headers" >/dev/null || echo spirv-headers
    fi
    command -v glslc >/dev/null || echo glslc
    [ "${1:-}" != lavapipe ] || [ -n "$(vulkan_lavapipe)" ] || echo mesa-vulkan-drivers
}

# The description of Mesa's driver that computes on the CPU.
vulkan_lavapipe() { compgen -G "$MACHINE/usr/share/vulkan/icd.d/lvp_icd*.json" | head -n 1; }

# vulkan_require WHO [lavapipe]
vulkan_require() {
    local who=$1 missing
    missing=$(vulkan_missing "${@:2}" | tr '\n' ' ')
    [ -z "$missing" ] || die "$who needs packages that are not here; install them with: apt-get install $missing"
}

# --- CUDA: NVIDIA's compiler, its runtime and cuBLAS, found here, put together from folders, or installed from PyPI -----

# The driver's devices exist, or its program says so (in some containers).
cuda_driver_is_there() { [ -e "$MACHINE/dev/nvidia0" ] || nvidia-smi -L >/dev/null 2>&1; }

# Where LLMD_CUDA_TOOLKIT is put together; fails when nothing says that it has to be.
cuda_toolkit() {
    case ${LLMD_CUDA_TOOLKIT:-} in
    '') return 1 ;;
    pypi) echo "$LLAMA_CACHE/cuda-pypi-$(hash_of <"$ROOT/requirements/cuda.txt")" ;;
    *) echo "$LLAMA_CACHE/cuda-joined-$(hash_of <<<"$LLMD_CUDA_TOOLKIT")" ;;
    esac
}

# Before any plan for a CUDA build: the toolkit that LLMD_CUDA_TOOLKIT names exists.
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

# cuda_toolkit_make TOOLKIT: as a folder of bin, include, lib and nvvm, which appears by one rename.
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

# cuda_join TREE FOLDER COPY: what a toolkit's folder has, wherever in it the libraries are.
cuda_join() {
    local tree=$1 from=$2 copy=$3 part
    for part in bin include nvvm lib lib64; do
        # shellcheck disable=SC2086  # a command and its options
        [ ! -d "$from/$part" ] || $copy "$from/$part/." "$tree/${part%64}/"
    done
}

# Packages have a library under the name that programs load alone.
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

# What there is of CUDA, in words.
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

# Refuses a CUDA build that could not be made, and says what to do.
cuda_require() {
    cuda_is_complete || die "LLMD_BACKEND=cuda needs NVIDIA's compiler and cuBLAS; here: $(cuda_findings). Install them with" \
        "apt-get install nvidia-cuda-toolkit (Debian's non-free), or set LLMD_CUDA_TOOLKIT=pypi (0.5 GB of Python packages)," \
        "or LLMD_CUDA_TOOLKIT=FOLDER:FOLDER to where they are"
    cuda_driver_is_there || [ -n "${LLMD_CUDA_ARCHITECTURES:-}${LLMD_PORTABLE:-}" ] ||
        die "LLMD_BACKEND=cuda compiles for the GPUs of this machine; here: $(cuda_findings). Install NVIDIA's driver, or name" \
            "the GPUs to compile for: LLMD_CUDA_ARCHITECTURES=90 (H100), 89 (RTX 40), 86 (RTX 30), 120 (RTX 50)"
}

# When a GPU is there and only the compiler is missing, it would be left unused without a word.
cuda_hint() {
    ! cuda_driver_is_there || cuda_is_complete ||
        say "an NVIDIA GPU stays unused: $(cuda_findings); LLMD_BACKEND=cuda says what to install"
}

cuda_flags() {
    local toolkit
    # cublas is linked dynamically: its static form would add hundreds of megabytes to libllm.
    echo "-DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF -DCMAKE_CUDA_COMPILER=$(cuda_compiler)"
    # A distribution's nvcc comes with an older g++, since it refuses the usual one.
    [ -z "${LLMD_CUDA_TOOLKIT:-}${CXX_ASKED:-}" ] || echo "-DCMAKE_CUDA_HOST_COMPILER=$CXX"
    ! toolkit=$(cuda_toolkit) || echo "-DCUDAToolkit_ROOT=$toolkit"
    # Without them ggml takes this machine's, where cmake knows how.
    [ -z "${LLMD_CUDA_ARCHITECTURES:-}" ] || echo "-DCMAKE_CUDA_ARCHITECTURES=$LLMD_CUDA_ARCHITECTURES"
    # Beside a wheel lie the packages with CUDA's libraries, if they are installed.
    [ -z "${LLMD_PORTABLE:-}" ] || echo "-DCMAKE_INSTALL_RPATH=\$ORIGIN;\$ORIGIN/../../../nvidia/cu13/lib"
}

# What another GPU could not run: the compiler's version, what the driver's calls go through, and the GPUs compiled for.
cuda_identity() {
    "$(cuda_compiler)" --version | tail -n 1
    hash_of <"$ROOT/cmake/cuda_driver.c"
    [ -n "${LLMD_CUDA_ARCHITECTURES:-}${LLMD_PORTABLE:-}" ] ||
        nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true
}

# cuda_driver_calls ARCHIVE: what llama.cpp calls of the driver itself, found when it is first called: without a driver
# the library can be loaded, and says that there is no GPU.
cuda_driver_calls() {
    local include
    include=$(cuda_compiler)
    include=${include%/bin/nvcc}/include
    "$CC" -O2 -fPIC -fvisibility=hidden -Wall -Wextra -I"$include" -c "$ROOT/cmake/cuda_driver.c" -o "$1.o"
    ar rcs "$1" "$1.o"
}
