#!/bin/sh
# Accept real vLLM on the CPU with a tiny model: the stages that one engine without a card can answer.
#
# usage: examples/accept_real.sh [PYTEST ARGUMENTS]       (called by `make accept-real`)
#
# PYTHON                 the Python that has pytest-rackgate (default .venv/bin/python)
# RACKGATE_VLLM_VENV     an environment that has vLLM already (default .venv-vllm, made when absent)
set -eu

cd "$(dirname "$0")/.."
sh examples/install_vllm.sh
exec "${PYTHON:-.venv/bin/python}" -m pytest -m rack_acceptance --rack-target=examples/vllm-cpu.toml --rack-slo=examples/acceptance/vllm-cpu.toml \
    --rack-profile=smoke --rack-stage=selfcheck,preflight,single_card,batch_retry "$@"
