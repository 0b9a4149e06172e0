#!/bin/sh
# Build rackgate-haproxy:local: this machine's own haproxy and the libraries that it is linked to, nothing else.
#
# usage: tests/images/gateway.sh                 (idempotent; there is no registry to lean on)
set -eu

image=rackgate-haproxy:local

fail() {
    echo "gateway.sh: $*" >&2
    exit 1
}

# Debian keeps it where only root's PATH leads.
program=$(PATH="$PATH:/usr/sbin" command -v haproxy) || fail "haproxy is missing: apt-get install haproxy"
sources=$(cat "$program" "$0" | sha256sum | cut -c 1-16)
built=$(docker image inspect --format '{{index .Config.Labels "rackgate.sources"}}' "$image" 2>/dev/null || true)
[ "$built" = "$sources" ] && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for file in "$program" $(ldd "$program" | grep -o '/[^ ]*'); do
    mkdir -p "$folder$(dirname "$file")"
    cp -L "$file" "$folder$file"
done
before=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null || true)
tar -C "$folder" --numeric-owner --owner 0 --group 0 -c . | docker import --change "LABEL rackgate.sources=$sources" \
    --change "ENTRYPOINT [\"$program\"]" - "$image" >/dev/null || fail "docker import of $image failed"
# The one that lost its name; one that a container still uses stays.
[ -z "$before" ] || docker image rm "$before" >/dev/null 2>&1 || true
