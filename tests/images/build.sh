#!/bin/sh
# Build the small images that the container tests and examples start: rackgate-simulated-engine:local here,
# rackgate-haproxy:local in gateway.sh.
#
# usage: tests/images/build.sh                   (idempotent; under a second when nothing changed)
#
# There is no registry to lean on: debootstrap makes the base from Debian's packages, once, and the
# wheels come through pip's ordinary configuration. RACKGATE_DEBIAN_MIRROR names another mirror.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${RACKGATE_CACHE:-$root/.cache}
python=${PYTHON:-python3}
base=rackgate-base:bookworm
image=rackgate-simulated-engine:local
# libnuma1 is for vLLM on the CPU, whose environment the real-engine tests mount into the base image.
packages=python3,libnuma1
base_version=2

fail() {
    echo "build.sh: $*" >&2
    exit 1
}

mkdir -p "$cache"
exec 9>"$cache/images.lock"
flock 9

docker version >/dev/null 2>&1 || fail "no Docker daemon answers: run tests/images/start_docker.sh as root"

sh "$here/gateway.sh"

# What the simulated engine is made of: a change elsewhere in the package needs no new image.
parts="rackgate/__init__.py rackgate/nouns rackgate/simulator"
sources=$( (
    cd "$root/plugins"
    find $parts -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 cat
    cat "$here/Dockerfile" "$here/simulated_engine.py"
    echo "$base_version"
) | sha256sum | cut -c 1-16)
built=$(docker image inspect --format '{{index .Config.Labels "rackgate.sources"}}' "$image" 2>/dev/null || true)
[ "$built" = "$sources" ] && exit 0

archive=$cache/base-bookworm-$base_version.tar
known=$(docker image inspect --format '{{index .Config.Labels "rackgate.base"}}' "$base" 2>/dev/null || true)
if [ "$known" != "$base_version" ]; then
    if [ ! -s "$archive" ]; then
        [ "$(id -u)" = 0 ] || fail "only root can make the base image: run 'sudo $0'"
        command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
        folder=$(mktemp -d "$cache/base.XXXXXX")
        trap 'rm -rf "$folder"' EXIT
        debootstrap --variant=minbase --include="$packages" bookworm "$folder" ${RACKGATE_DEBIAN_MIRROR:-} \
            >"$cache/debootstrap.log" 2>&1 ||
            fail "debootstrap failed; the end of $cache/debootstrap.log: $(tail -n 5 "$cache/debootstrap.log")"
        rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/* \
            "$folder"/usr/share/doc/* "$folder"/usr/share/locale/* "$folder"/usr/share/man/*
        tar -C "$folder" --numeric-owner -c -f "$archive.part" .
        mv "$archive.part" "$archive"
        rm -rf "$folder"
        trap - EXIT
    fi
    docker import --change "LABEL rackgate.base=$base_version" "$archive" "$base" >/dev/null || fail "docker import of the base failed"
fi

# Wheels for the image's own Python, which is not always ours.
if [ ! -d "$cache/site-3.11/httptools" ]; then
    "$python" -m pip install --quiet --target "$cache/site-3.11" --python-version 3.11 --implementation cp \
        --abi cp311 --only-binary=:all: httptools uvloop || fail "pip could not get httptools and uvloop"
fi

context=$(mktemp -d "$cache/context.XXXXXX")
trap 'rm -rf "$context"' EXIT
cp -r "$cache/site-3.11" "$context/site"
mkdir "$context/rackgate"
for part in $parts; do
    cp -r "$root/plugins/$part" "$context/$part"
done
cp "$here/simulated_engine.py" "$context/"
find "$context/rackgate" -name __pycache__ -prune -exec rm -rf {} +
before=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null || true)
DOCKER_BUILDKIT=0 docker build --quiet --label "rackgate.sources=$sources" --file "$here/Dockerfile" \
    --tag "$image" "$context" >/dev/null || fail "docker build of $image failed"
# The one that lost its name; one that a container still uses stays.
[ -z "$before" ] || docker image rm "$before" >/dev/null 2>&1 || true
