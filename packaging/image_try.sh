#!/usr/bin/env bash
# image_try.sh WORK ROOT PYTHON: the steps of `./build.sh test-image` in the image that is mounted at WORK/mounted, in a mount
# namespace of its own. The settings are those of the image: its user, environment, program and health check.
set -euo pipefail

work=$1 checkout=$2 python=$3
root=$(<"$work/mounted")

step() { printf '  %s\n' "$*"; }
fail() {
    printf 'failed: %s\n' "$*" >&2
    exit 1
}

# of_image EXPRESSION: a part of its configuration, as Python sees it; lists as words.
of_image() {
    "$python" -c '
import json, sys
config = json.load(open(sys.argv[1]))["Docker"]["config"]
part = eval(sys.argv[2])
print(*part) if isinstance(part, list) else print(part)' "$work/image.json" "$1"
}

root_of_image="chroot --userspec=$(of_image 'config["User"]') $root env"
inside="$root_of_image -i $(of_image 'config["Env"]')"
program=$(of_image 'config["Entrypoint"]')
health=$(of_image 'config["Healthcheck"]["Test"][1:]')
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"

step "without API keys it does not start on all addresses"
# shellcheck disable=SC2086  # words
if $inside $program >"$work/log" 2>&1; then fail "it has"; fi
grep -q -- --open "$work/log" || fail "$(cat "$work/log")"

step "serves as $(of_image 'config["User"]'), on the CPU"
tried="$root_of_image $(of_image 'config["Env"]') LLMD_HOST=127.0.0.1" # and what the program sets: the port
"$python" "$checkout/tools/try_installed.py" --llmd "$tried $program" --llmctl "$tried llmctl" --folder /var/lib/llmd \
    --backend CPU 2>"$work/log" || fail "$(tail -n 20 "$work/log")"

step "health: $health"
# shellcheck disable=SC2086  # words
! $inside $health >/dev/null 2>&1 || fail "healthy, although nothing runs"
# shellcheck disable=SC2086  # words
$inside LLMD_HOST=127.0.0.1 LLMD_PORT=0 $program >"$work/log" 2>&1 &
daemon=$!
for ((i = 0; i < 100; i++)); do
    # shellcheck disable=SC2086  # words
    ! $inside $health >/dev/null 2>&1 || break
    sleep 0.2
done
kill "$daemon"
wait "$daemon" || fail "it ended with an error: $(tail -n 5 "$work/log")"
[ "$i" -lt 100 ] || fail "not healthy after 20 s"

step "quadlet: packaging/llmd.container"
generator=
for candidate in /usr/libexec/podman/quadlet /usr/lib/podman/quadlet; do
    [ ! -x "$candidate" ] || generator=$candidate
done
if [ -n "$generator" ]; then
    mkdir "$work/units"
    cp "$checkout/packaging/llmd.container" "$work/units/"
    QUADLET_UNIT_DIRS=$work/units "$generator" -dryrun >"$work/log" 2>"$work/remarks" || fail "$(cat "$work/remarks")"
    started=$(sed -n 's/^ExecStart=//p' "$work/log")
    for expected in "--network host" "--sdnotify=container" "--env LLMD_HOST=127.0.0.1" "localhost/llmd:cpu" \
        "--health-cmd \"$health\"" "-v llmd-state:$(of_image 'list(config["Volumes"])')" \
        "--env LLMD_PORT=$(of_image '[one.split("/")[0] for one in config["ExposedPorts"]]')"; do
        [[ " $started " == *" $expected "* ]] || fail "the generated unit has no $expected: $started"
    done
    sed 1d "$work/log" >"$work/units/llmd.service"
    ! command -v systemd-analyze >/dev/null || systemd-analyze verify --man=no "$work/units/llmd.service" || fail "its unit is wrong"
else
    step "  LEFT OUT: only Podman 4.4 or later has its generator; apt-get install podman (Debian 13)"
fi

du -sh --exclude=proc --exclude=dev "$root" | awk '{print "image for the CPU, unpacked: " $1 "B"}'
