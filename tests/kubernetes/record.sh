#!/bin/sh
# Record what a real API server answers to the kubernetes launcher, into recorded.json beside this file.
#
# usage: tests/kubernetes/record.sh FOLDER       (as root on Debian 12; an hour on two cores the first time)
#
# No package holds a kube-apiserver. Debian's *source* package of Kubernetes has one: it is fetched with apt,
# built with Debian's Go in FOLDER, and run beside Debian's etcd on loopback. Nothing is installed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
mkdir -p "$folder/apt/lists/partial" "$folder/parts" "$folder/root" "$folder/bin"
cd "$folder"

if [ ! -x bin/kube-scheduler ]; then
    sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >parts/source.sources
    apt="-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$folder/parts -o Dir::State::lists=$folder/apt/lists"
    # shellcheck disable=SC2086  # one word each
    apt-get $apt update -qq
    # shellcheck disable=SC2086
    apt-get $apt -qq --download-only source kubernetes
    apt-get download -qq golang-1.19-go golang-1.19-src etcd-server
    for package in *.deb; do dpkg -x "$package" root; done
    mkdir -p go/src/k8s.io/kubernetes
    tar xzf kubernetes_*.orig.tar.gz --strip-components=1 -C go/src/k8s.io/kubernetes
    # Its list of modules is older than this Go: it is built as what was built before there were modules.
    export GOROOT="$folder/root/usr/lib/go-1.19" GOCACHE="$folder/cache" GOPATH="$folder/go"
    export GO111MODULE=off CGO_ENABLED=0
    cd go/src/k8s.io/kubernetes
    # One file of it is generated and not kept there: what the API's types look like.
    PATH="$GOROOT/bin:$PATH"
    "$GOROOT/bin/go" build -o "$folder/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    inputs=$(grep -rl --include='*.go' '+k8s:openapi-gen=' staging/src/k8s.io pkg | grep -v '_test.go$' |
        xargs -n 1 dirname | sort -u | grep -v '_examples\|sample-apiserver\|/cmd/\|/example' |
        sed 's#^staging/src/k8s.io#k8s.io/kubernetes/vendor/k8s.io#; s#^pkg#k8s.io/kubernetes/pkg#' | paste -sd,)
    "$folder/openapi-gen" -i "$inputs" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
        -h hack/boilerplate/boilerplate.generatego.txt -o "$GOPATH/src" -r "$folder/violations"
    for program in kube-apiserver kube-controller-manager kube-scheduler; do
        nice "$GOROOT/bin/go" build -tags providerless -o "$folder/bin/$program" "./cmd/$program"
    done
    cd "$folder"
    cp root/usr/bin/etcd bin/
fi
PYTHONPATH="$root/plugins" exec "${PYTHON:-python3}" "$here/record.py" "$folder/bin" "$here/recorded.json"
