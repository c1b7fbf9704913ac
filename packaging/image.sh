# shellcheck shell=bash
# The test of packaging/Containerfile. Sourced by build.sh.

# image_try: builds the image with buildah out of a Debian made here (no image is downloaded), and uses it as its user.
image_try() {
    local program missing=
    for program in buildah mmdebstrap; do
        command -v "$program" >/dev/null || missing+=" $program"
    done
    [ -z "$missing" ] || die "test-image needs: apt-get install$missing"
    [ "$(id -u)" -eq 0 ] || die "test-image needs root"
    wheel_of "$(uname -m)" >/dev/null
    (
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        stage "a Debian as the base image" image_base "$work"
        stage "image: packaging/Containerfile" image_build "$work"
        unshare --mount "$ROOT/packaging/image_try.sh" "$work" "$ROOT" "$(find_python)"
    )
}

# buildah's storage in the folder of the test, so that nothing stays.
image_buildah() {
    local work=$1
    shift
    buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"
}

# The Debian that the image has by default.
image_suite() { sed -n 's/^ARG BASE=debian:\(.*\)-slim$/\1/p' "$ROOT/packaging/Containerfile"; }

# image_base WORK: with the certificates of this machine, which may reach its package registry through a proxy of its own.
image_base() {
    local work=$1 container
    mmdebstrap --variant=minbase --include=ca-certificates "${LLMD_TEST_SUITE:-$(image_suite)}" "$work/base"
    cp /etc/ssl/certs/ca-certificates.crt "$work/base/etc/ssl/certs/"
    container=$(image_buildah "$work" from scratch)
    image_buildah "$work" add "$container" "$work/base" /
    image_buildah "$work" config --env PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$container"
    image_buildah "$work" commit --rm "$container" localhost/llmd-try-base
    rm -r "$work/base"
}

image_build() {
    local work=$1
    image_buildah "$work" build --isolation chroot --network host --format docker --build-arg BASE=localhost/llmd-try-base \
        --tag localhost/llmd-try --file "$ROOT/packaging/Containerfile" "$ROOT"
    image_buildah "$work" inspect --type image localhost/llmd-try >"$work/image.json"
    image_buildah "$work" images
    image_buildah "$work" mount "$(image_buildah "$work" from localhost/llmd-try)" >"$work/mounted"
}
