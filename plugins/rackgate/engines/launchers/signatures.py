"""Known start-up failures: what an engine's log or a container daemon says, and what to try then."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["SIGNATURES", "Signature", "explain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One known failure. `layer` is that of `LaunchFailed`; `pattern` is searched in the log's end."""

    name: str
    layer: str
    pattern: str
    hint: str


SIGNATURES = (
    Signature(
        name="gpu_runtime_missing",
        layer="service",
        pattern=r"could not select device driver",
        hint="the Docker daemon has no such GPU driver: install the NVIDIA container toolkit on that node, "
        "run `nvidia-ctk runtime configure` and restart the daemon; neither image nor engine is at fault",
    ),
    Signature(
        name="cdi_unresolvable",
        layer="service",
        pattern=r"unresolvable CDI devices",
        hint="the daemon does not know these CDI devices: generate the specification with `nvidia-ctk cdi "
        "generate` into /etc/cdi or /var/run/cdi, and compare the names with `nvidia-ctk cdi list`",
    ),
    Signature(
        name="shared_memory",
        layer="service",
        pattern=r"(?i)while (creating|attaching to|extending) shared memory segment|/dev/shm.{0,200}(No space"
        r" left|too small)|(extend|posix_fallocate|Bus error).{0,200}/dev/shm|insufficient shared memory",
        hint="the container's shared memory is too small (this is no hardware fault): raise shm_size",
    ),
    Signature(
        name="port_in_use",
        layer="service",
        pattern=r"(?i)address already in use|port is already allocated|Errno 98",
        hint="another process has that port: leave out `port` to take a free one, or look with `ss -ltnp`",
    ),
    Signature(
        name="out_of_memory",
        layer="model",
        pattern=r"(?i)CUDA out of memory|OutOfMemoryError|hipErrorOutOfMemory|Cannot allocate memory"
        r"|MemoryError"
        r"|No available memory for the cache blocks|less than desired GPU memory utilization|oom-?kill",
        hint="the model does not fit: fewer or shorter sequences, a lower memory utilisation, more cards, or "
        "see who else holds the card's memory",
    ),
    Signature(
        name="driver_too_old",
        layer="service",
        pattern=r"(?i)driver version is insufficient for CUDA runtime|unsatisfied condition: cuda"
        r"|NVIDIA driver on your system is too old",
        hint="the node's driver is older than the image's CUDA: update the driver or take an older image",
    ),
    Signature(
        name="unsupported_architecture",
        layer="model",
        pattern=r"(?i)Model architectures? .{0,120}(not supported|failed to be inspected)"
        r"|does not recognize this architecture|unknown model architecture|unsupported (model )?architecture",
        hint="this engine does not know the model's architecture: take a newer version, or another engine",
    ),
    Signature(
        name="bad_key",
        layer="model",
        pattern=r"(?i)401 (Client Error|Unauthorized)|Invalid (username or password|user token|API key)"
        r"|gated repo|access to model .{0,120} is restricted",
        hint="the key was refused: see that the variables in `env_from` hold a valid one for this model",
    ),
    Signature(
        name="model_missing",
        layer="model",
        pattern=r"(?i)RepositoryNotFoundError|is not a local folder and is not a valid model identifier"
        r"|does not appear to have a file named|not a valid model (path|identifier)"
        r"|No such file.{0,200}(gguf|safetensors|config\.json)"
        r"|failed to (load|open) (the )?model|Can't load the configuration"
        r"|Invalid repository ID or local directory|Repo id must",
        hint="the model is not where the command says: check its path or name, and that it is downloaded "
        "(nothing is downloaded at run time when the hub is offline)",
    ),
    Signature(
        name="command_missing",
        layer="service",
        pattern=r"(?i)executable file not found|No module named|command not found|exec format error"
        r"|runc create failed.*no such file or directory",
        hint="the command cannot run: check the program, the working directory, and the environment it is in",
    ),
)
"""Searched in this order: the first that matches explains the failure."""


def explain(text: str) -> Signature | None:
    """Return the first known failure that `text` shows, or None."""
    return next((known for known in SIGNATURES if re.search(known.pattern, text)), None)
