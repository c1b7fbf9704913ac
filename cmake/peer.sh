# shellcheck shell=bash
# Builds the programs of llama.cpp with which `./build.sh bench` compares llmd: llama-server, llama-bench and
# llama-quantize. They have the same source archive, compiler and flags as libllm, but none of llmd's patches. With
# LLMD_PEER_AMX=1 they get 0001-amx.patch, too, as if the compiler had no defect in AMX code. Sourced by build.sh after
# llama.sh.

PEER_PROGRAMS=(llama-server llama-bench llama-quantize)

# Sets PEER_PREFIX, whose bin/ holds the programs, PEER_DESCRIPTION, and LLAMA_CONFIGURE to the cmake arguments.
peer_plan() {
    local probe amx flags changes=
    LLMD_PORTABLE='' llama_plan "$(LLMD_PORTABLE='' native_name)"
    probe=$(mktemp)
    amx=$(amx_verdict "$probe" -DLLAMA_UNCHANGED)
    rm -f "$probe"
    if [ -n "${LLMD_PEER_AMX:-}" ]; then
        changes=$(hash_of <"$LLAMA_CHANGES/0001-amx.patch")
    elif [ "$amx" = broken ] && [ "$LLAMA_AMX" = works ]; then
        flags=$(amx_flags native broken) # without 0001-amx.patch, AMX code of this compiler would end with an illegal
                                         # instruction
        LLAMA_CONFIGURE+=("-DCMAKE_C_FLAGS=$flags" "-DCMAKE_CXX_FLAGS=$flags")
    fi
    # OpenMP is llama.cpp's default way to wait at barriers. llmd's builds use 0003-barrier.patch instead.
    LLAMA_CONFIGURE+=(-DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON -DGGML_OPENMP=ON)
    PEER_DESCRIPTION=$(
        grep -v -e '^variant ' -e '^recipe ' -e '^changes ' -e '^flags ' <<<"$LLAMA_DESCRIPTION"
        printf '%s\n' "programs ${PEER_PROGRAMS[*]}" ${changes:+"its changes $changes"} "flags ${LLAMA_CONFIGURE[*]}"
    )
    PEER_PREFIX=$LLAMA_CACHE/peer-$(awk '$1 == "backend" {print $2}' <<<"$PEER_DESCRIPTION")-$(hash_of <<<"$PEER_DESCRIPTION")
}

# Builds the programs if they do not exist yet.
peer_ensure() {
    peer_plan
    [ ! -d "$PEER_PREFIX" ] || return 0
    mkdir -p "$LLAMA_CACHE"
    (
        flock 9
        [ -d "$PEER_PREFIX" ] || peer_make
    ) 9>"$PEER_PREFIX.lock"
}

# The source with these programs has a folder of its own. So the cached source and builds of the engine stay valid.
peer_make() {
    local original source=$LLAMA_CACHE/peer-source-$LLAMA_VERSION-${LLAMA_SHA256:0:12}
    [ -d "$source" ] ||
        stage "llama.cpp source with its programs: $LLAMA_PACKAGE $LLAMA_VERSION, 38 MB" \
            llama_fetch "$source" "${LLAMA_PARTS[@]}" 'tools/*' 'scripts/ui-assets.cmake'
    if [ -n "${LLMD_PEER_AMX:-}" ]; then
        original=$source source+=-amx-$(hash_of <"$LLAMA_CHANGES/0001-amx.patch")
        if [ ! -d "$source" ]; then
            rm -rf "$source.work"
            cp -r "$original" "$source.work"
            patch --silent --strip=1 --directory="$source.work" <"$LLAMA_CHANGES/0001-amx.patch"
            mv "$source.work" "$source"
        fi
    fi
    stage "${PEER_PROGRAMS[*]}${LLMD_PEER_AMX:+ with our 0001-amx.patch}: about 7 min on 2 cores, once" peer_compile "$source"
}

# An interrupted build continues at the next call, because its folder is kept.
peer_compile() {
    local source=$1 work=$PEER_PREFIX.work program
    "$CMAKE" -G Ninja -DCMAKE_MAKE_PROGRAM="$NINJA" -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" \
        -S "$source" -B "$work/build" "${LLAMA_CONFIGURE[@]}"
    llama_cmake_build "$work/build" --target "${PEER_PROGRAMS[@]}"
    rm -rf "$work/prefix"
    mkdir -p "$work/prefix/bin"
    for program in "${PEER_PROGRAMS[@]}"; do
        cp "$work/build/bin/$program" "$work/prefix/bin/"
    done
    cp "$source/LICENSE" "$work/prefix/"
    echo "$PEER_DESCRIPTION" >"$work/prefix/description.txt"
    mv "$work/prefix" "$PEER_PREFIX"
    rm -rf "$work"
}
