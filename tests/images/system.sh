#!/bin/sh
# Install and start what the container tests need; as anyone but root, say what is missing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)

missing=""
command -v dockerd >/dev/null || [ -S /var/run/docker.sock ] || missing="$missing docker.io"
command -v iptables >/dev/null || [ -S /var/run/docker.sock ] || missing="$missing iptables"
command -v debootstrap >/dev/null || missing="$missing debootstrap"
command -v haproxy >/dev/null || missing="$missing haproxy"
command -v docker-registry >/dev/null || missing="$missing docker-registry"
[ -x /usr/sbin/sshd ] || missing="$missing openssh-server"
command -v ssh >/dev/null || missing="$missing openssh-client"
command -v openssl >/dev/null || missing="$missing openssl"
command -v prometheus >/dev/null || missing="$missing prometheus"
command -v ip >/dev/null || missing="$missing iproute2"
command -v gcc >/dev/null || missing="$missing gcc libc6-dev"
command -v taskset >/dev/null || missing="$missing util-linux"

if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "system.sh: the container tests need:$missing. As root: apt-get install$missing" >&2
        exit 1
    fi
    echo "installing$missing"
    apt-get update -qq
    # RUNLEVEL=1: the tests start what they need themselves, no package shall start its service.
    # shellcheck disable=SC2086  # one word each
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
exec sh "$here/start_docker.sh"
