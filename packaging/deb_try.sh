#!/usr/bin/env bash
# deb_try.sh WORK DEB ROOT PYTHON: the steps of `./build.sh test-deb` in the Debian of WORK/root, in a mount namespace of its own.
set -euo pipefail

work=$1 deb=$2 checkout=$3 python=$4
root=$work/root

step() { printf '  %s\n' "$*"; }
fail() {
    printf 'failed: %s\n' "$*" >&2
    exit 1
}
inside() { chroot "$root" "$@"; }

# serve: as the unit starts it.
serve() {
    local command
    command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/llmd.service")
    inside runuser -u llmd -- test -w /var/lib/llmd || fail "the user llmd cannot write /var/lib/llmd"
    inside rm -rf /var/lib/llmd/state
    "$python" "$checkout/tools/try_installed.py" --llmd "chroot --userspec=llmd:llmd $root $command" --llmctl "chroot $root llmctl" \
        --folder /var/lib/llmd 2>"$work/log" || fail "$(tail -n 20 "$work/log")"
}

mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
cp "$deb" "$root/first.deb"
cp "$work/next.deb" "$root/next.deb"

step install
inside dpkg -i /first.deb >"$work/dpkg.log" 2>&1 || fail "$(cat "$work/dpkg.log")"
inside getent passwd llmd >/dev/null || fail "there is no user llmd"
[ -e "$root/usr/share/man/man1/llmd.1.gz" ] || fail "there is no manual"
inside find /usr/lib/llmd/common -name '*.pyc' | grep -q . || fail "nothing is compiled"
serve

step "install again, as after an interrupted one"
inside dpkg -i /first.deb >"$work/dpkg.log" 2>&1 || fail "$(cat "$work/dpkg.log")"

step upgrade
echo LLMD_LOG_LEVEL=warning >>"$root/etc/llmd/llmd.env"
inside dpkg -i /next.deb >"$work/dpkg.log" 2>&1 || fail "$(cat "$work/dpkg.log")"
grep -q '^LLMD_LOG_LEVEL=warning' "$root/etc/llmd/llmd.env" || fail "the upgrade has replaced llmd.env"
serve

step remove
inside dpkg -r llmd >"$work/dpkg.log" 2>&1 || fail "$(cat "$work/dpkg.log")"
[ ! -e "$root/usr/lib/llmd" ] || fail "left in /usr/lib/llmd: $(find "$root/usr/lib/llmd" | head)"
[ -d "$root/var/lib/llmd/state" ] && [ -e "$root/etc/llmd/llmd.env" ] || fail "remove has taken the state or the options"

step purge
inside dpkg -P llmd >"$work/dpkg.log" 2>&1 || fail "$(cat "$work/dpkg.log")"
[ ! -e "$root/var/lib/llmd" ] && [ ! -e "$root/etc/llmd" ] || fail "purge has left the state or the options"
