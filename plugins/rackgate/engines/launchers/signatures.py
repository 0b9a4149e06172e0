"""Known start-up failures: what an engine's log or a container daemon says, and what to try then."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["SIGNATURES", "Explanation", "Signature", "explain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One known failure. `layer` is that of `LaunchFailed`; `pattern` is searched in the log's end.

    `cause` says whose it is: `environment` (the node or the daemon), `configuration` (how it was started),
    `credentials`, `model` or `engine`. None of them is a fault of the hardware. Named groups of the
    pattern fill the hint.
    """

    name: str
    layer: str
    pattern: str
    hint: str
    cause: str = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A known failure as it was found: the line that shows it, and the named groups that matched."""

    name: str
    layer: str
    cause: str
    hint: str
    line: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


SIGNATURES = (
    Signature(
        name="container_lost_gpu",
        cause="environment",
        layer="service",
        pattern=r"Failed to initialize NVML: Unknown Error",
        hint="the container lost its GPU devices, as after `systemctl daemon-reload` on the node: look at "
        "the cards from the node, create the container again, and count nothing since the loss",
    ),
    Signature(
        name="gpu_runtime_missing",
        cause="environment",
        layer="service",
        pattern=r"could not select device driver \"?(?P<driver>[\w.-]*)\"?",
        hint="the Docker daemon has no such GPU driver: install the NVIDIA container toolkit on that node, "
        "run `nvidia-ctk runtime configure` and restart the daemon; neither image nor engine is at fault",
    ),
    Signature(
        name="cdi_unresolvable",
        cause="environment",
        layer="service",
        pattern=r"unresolvable CDI devices (?P<devices>[\w./=-]+(?:, ?[\w./=-]+)*)",
        hint="the daemon does not know the CDI devices {devices}: generate the "
        "specification with `nvidia-ctk cdi generate` into /etc/cdi or /var/run/cdi, and compare the names "
        "with `nvidia-ctk cdi list`",
    ),
    Signature(
        name="shared_memory",
        cause="configuration",
        layer="service",
        pattern=r"(?i)while (creating|attaching to|extending) shared memory segment|/dev/shm.{0,200}(No space"
        r" left|too small)|(extend|posix_fallocate|Bus error).{0,200}/dev/shm|insufficient shared memory",
        hint="the container's shared memory is too small (this is no hardware fault): raise shm_size",
    ),
    Signature(
        name="limit_refused",
        cause="environment",
        layer="service",
        pattern=r"error setting rlimit type (?P<type>\d+): operation not permitted",
        hint="the daemon itself may not raise that limit (type 8 is memlock, 7 is nofile): raise it for the "
        "daemon, as with LimitMEMLOCK=infinity in its unit, or set ulimits = { } in [engine.settings]",
    ),
    Signature(
        name="no_free_card",
        cause="environment",
        layer="service",
        pattern=r"Unschedulable:[^\n]{0,400}Insufficient (?P<resource>[\w./-]*\w)",
        hint="no node has enough {resource} free: see `kubectl describe nodes`, who holds them, and whether "
        "the device plugin runs",
    ),
    Signature(
        name="no_node",
        cause="configuration",
        layer="service",
        pattern=r"Unschedulable:",
        hint="no node takes the pod: check node_name, node_selector and tolerations against its taints",
    ),
    Signature(
        name="image_not_on_node",
        cause="environment",
        layer="service",
        pattern=r"ErrImageNeverPull|ImagePullBackOff|ErrImagePull",
        hint="the node has no such image: check its name, pull = 'missing', and pull_secret",
    ),
    Signature(
        name="pod_security",
        cause="configuration",
        layer="service",
        pattern=r"violates PodSecurity",
        hint="the namespace's security profile refuses the pod: its message names the field",
    ),
    Signature(
        name="port_in_use",
        cause="environment",
        layer="service",
        pattern=r"(?i)address already in use|port is already allocated|Errno 98",
        hint="another process has that port: leave out `port` to take a free one, or look with `ss -ltnp`",
    ),
    Signature(
        name="out_of_memory",
        cause="configuration",
        layer="model",
        pattern=r"(?i)CUDA out of memory|OutOfMemoryError|hipErrorOutOfMemory|Cannot allocate memory"
        r"|MemoryError"
        r"|No available memory for the cache blocks|less than desired GPU memory utilization|oom-?kill",
        hint="the model does not fit: fewer or shorter sequences, a lower memory utilisation, more cards, or "
        "see who else holds the card's memory",
    ),
    Signature(
        name="driver_too_old",
        cause="environment",
        layer="service",
        # Triton warns of pinned memory in the same words on a machine without a card, and serves.
        pattern=r"(?i)(?<!will not be available: CUDA )driver version is insufficient for CUDA runtime"
        r"|unsatisfied condition: cuda|NVIDIA driver on your system is too old",
        hint="the node's driver is older than the image's CUDA: update the driver or take an older image",
    ),
    Signature(
        name="unsupported_architecture",
        cause="model",
        layer="model",
        pattern=r"(?i)Model architectures? .{0,120}(not supported|failed to be inspected)"
        r"|does not recognize this architecture|unknown model architecture|unsupported (model )?architecture",
        hint="this engine does not know the model's architecture: take a newer version, or another engine",
    ),
    Signature(
        name="bad_key",
        cause="credentials",
        layer="model",
        pattern=r"(?i)401 (Client Error|Unauthorized)|Invalid (username or password|user token|API key)"
        r"|gated repo|access to model .{0,120} is restricted",
        hint="the key was refused: see that the variables in `env_from` hold a valid one for this model",
    ),
    Signature(
        name="model_missing",
        cause="model",
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
        cause="configuration",
        layer="service",
        pattern=r"(?i)executable file not found|No module named|command not found|exec format error"
        r"|runc create failed.*no such file or directory",
        hint="the command cannot run: check the program, the working directory, and the environment it is in",
    ),
)
"""Searched in this order: the first that matches explains the failure."""


def explain(text: str, first: Iterable[Signature] = ()) -> Explanation | None:
    """Return the known failure that `text` shows, looking at those of `first` before the general ones."""
    for known in (*first, *SIGNATURES):
        match = re.search(known.pattern, text)
        if match:
            facts = {group: value.strip() for group, value in match.groupdict().items() if value is not None}
            return Explanation(
                name=known.name,
                layer=known.layer,
                cause=known.cause,
                hint=_filled(known.hint, match.groupdict()),
                line=_line_at(text, match.start(), match.end()),
                facts=facts,
            )
    return None


def _line_at(text: str, start: int, end: int) -> str:
    """Return the line around a match, at most 300 characters of it from the match on."""
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    line = text[first : last if last >= 0 else None].strip()
    return line if len(line) <= 300 else text[start : start + 300].strip()


def _filled(hint: str, groups: Mapping[str, str | None]) -> str:
    """Fill `{group}`; a group that matched nothing leaves no trace, nor does "(now {group})"."""
    filled = re.sub(r"\{(\w+)\}", lambda found: groups.get(found[1]) or "", hint)
    return re.sub(r"\s+(?=[:;,.)])", "", re.sub(r"\(\w+\s\)|\s{2,}", " ", filled)).strip()
