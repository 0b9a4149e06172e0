#!/bin/sh
# Make sure that a Docker daemon answers, with a stand-in for NVIDIA's hook on its PATH.
#
# usage: tests/images/start_docker.sh            (as root; idempotent; the daemon stays when this ends)
#
# The stand-in lets a machine without a card show that exactly the requested device ids arrive in a
# container. A machine that has the real hook keeps it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${RACKGATE_CACHE:-$here/../../.cache}
limit_s=${RACKGATE_DOCKER_LIMIT_S:-60}

fail() {
    echo "start_docker.sh: $*" >&2
    exit 1
}

if docker version >/dev/null 2>&1; then
    exit 0
fi
[ "$(id -u)" = 0 ] || fail "no Docker daemon answers, and only root can start one: run 'sudo $0'"
command -v dockerd >/dev/null || fail "dockerd is missing: apt-get install docker.io iptables debootstrap"
command -v iptables >/dev/null || fail "iptables is missing, and dockerd needs it: apt-get install iptables"

# A daemon that was killed leaves its number behind, which another process may have by now.
forget_dead() {
    if [ -f "$1" ] && ! grep -qx "$2" "/proc/$(cat "$1")/comm" 2>/dev/null; then
        rm -f "$1"
    fi
}
forget_dead /var/run/docker.pid dockerd
forget_dead /var/run/docker/containerd/containerd.pid containerd

mkdir -p "$cache/docker-path"
cp "$here/nvidia-container-runtime-hook" "$cache/docker-path/"
chmod +x "$cache/docker-path/nvidia-container-runtime-hook"
log=$cache/dockerd.log

# The real hook, where there is one, comes first.
PATH="$PATH:$cache/docker-path" setsid dockerd >"$log" 2>&1 </dev/null &
daemon=$!

waited=0
until docker version >/dev/null 2>&1; do
    kill -0 "$daemon" 2>/dev/null || fail "dockerd ended while it started; the end of $log: $(tail -n 5 "$log")"
    [ "$waited" -lt "$((limit_s * 5))" ] || fail "dockerd did not answer within $limit_s s; see $log"
    sleep 0.2
    waited=$((waited + 1))
done
