"""What a target needs before it can run without a network, and what of it is here."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from rackgate.engines.catalogue import kind_of
from rackgate.engines.gateway import gateway_spec
from rackgate.engines.launchers.containers.daemon import Daemon, NoDaemon, choose_daemon
from rackgate.engines.launchers.containers.images import image_of
from rackgate.engines.launchers.containers.tunnel import daemon_client
from rackgate.engines.launchers.filling import with_defaults
from rackgate.engines.launchers.members import parts_of
from rackgate.engines.launchers.settings import text, text_table, texts
from rackgate.nouns.target import EngineSpec, Target

_DISTRIBUTION = "pytest-rackgate"
_WEIGHTS = ("*.safetensors", "*.gguf", "*.bin", "*.engine")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that a target needs. `here` is None where it cannot be looked at from this machine.

    `kind` is `image`, `wheel`, `command`, `model`, `tokenizer` or `data`; `detail` is a digest, a
    version or a path, or why it is not here.
    """

    kind: str
    name: str
    wanted_by: str
    here: bool | None
    detail: str = ""


def needs_of(target: Target) -> list[Need]:
    """Return everything the target needs, each once, in the order of its engines."""
    found = [need for spec in _all_specs(target) for need in _engine_needs(spec)]
    if target.batch is not None:
        found.append(_command(target.batch.command[0], "batch", None))
    found += _wheels()
    return list({(need.kind, need.name): need for need in reversed(found)}.values())[::-1]


def daemons_of(target: Target) -> list[Daemon]:
    """Return the daemons that the target's containers run on, each once."""
    found: dict[str, Daemon] = {}
    for spec in _all_specs(target):
        for part in parts_of(spec) if spec.launcher == "container" else ():
            daemon = _daemon(part.spec)
            if daemon is not None:
                found[daemon.address] = daemon
    return list(found.values())


def _all_specs(target: Target) -> tuple[EngineSpec, ...]:
    gateway = gateway_spec(target)
    return (*target.engines, gateway) if gateway else target.engines


def _daemon(spec: EngineSpec) -> Daemon | None:
    settings = spec.settings
    try:
        return choose_daemon(
            text(settings, "docker_host"),
            context=text(settings, "docker_context"),
            tls_folder=text(settings, "docker_tls"),
        )
    except NoDaemon:
        return None


def _engine_needs(spec: EngineSpec) -> Iterator[Need]:
    for part in parts_of(spec):
        in_container = spec.launcher in ("container", "kubernetes")
        own = part.spec
        filled = replace(
            own, settings=with_defaults(own.settings, in_container=in_container, cards=len(own.cards))
        )
        if spec.launcher == "container":
            yield _image(filled)
            yield from _volumes(filled)
        elif spec.launcher == "kubernetes":
            name = text(filled.settings, "image", "(none)") or ""
            yield Need(
                kind="image", name=name, wanted_by=own.name, here=None, detail="on the cluster's nodes"
            )
        elif spec.launcher == "process":
            yield from _process(filled)
        else:
            continue
        yield from _model(filled)


def _image(spec: EngineSpec) -> Need:
    name = text(spec.settings, "image", "(none)") or ""
    daemon = _daemon(spec)

    def need(here: bool | None, detail: str) -> Need:  # noqa: FBT001
        return Need(kind="image", name=name, wanted_by=spec.name, here=here, detail=detail)

    if daemon is None:
        return need(None, "its daemon is not known")
    from docker.errors import DockerException, ImageNotFound

    try:
        with daemon_client(daemon, timeout_s=20) as client:
            return need(True, image_of(name, client.images.get(name).attrs).digest)
    except ImageNotFound:
        return need(False, f"docker pull {name}, or docker load of an archive")
    except (NoDaemon, DockerException, OSError) as error:
        return need(None, str(error))


def _volumes(spec: EngineSpec) -> Iterator[Need]:
    """Yield the host folders that are mounted; those on another machine cannot be looked at from here."""
    daemon = _daemon(spec)
    near = daemon is not None and daemon.is_local
    for outside in text_table(spec.settings, "volumes"):
        path = Path(outside).expanduser()
        here = path.exists() if near else None
        detail = str(path.resolve()) if near else "on another machine"
        yield Need(kind="data", name=outside, wanted_by=spec.name, here=here, detail=detail)
        if near and here:
            yield from _files_of_model(path, outside, spec.name)


def _process(spec: EngineSpec) -> Iterator[Need]:
    words = texts(spec.settings, "command")
    if not words:
        return
    folder = text(spec.settings, "cwd")
    yield _command(words[0], spec.name, folder)
    module = _module(words)
    program = _found(words[0], folder)
    if module and program:
        found = _module_version(Path(program), module)
        yield Need(
            kind="wheel",
            name=module,
            wanted_by=spec.name,
            here=bool(found),
            detail=found or f"pip install {module}",
        )


def _module(words: tuple[str, ...]) -> str:
    """Return the package of `python -m PACKAGE.MODULE`, empty for any other command."""
    if len(words) < 3 or words[1] != "-m" or not re.match(r"python[\d.]*$", Path(words[0]).name):
        return ""
    return words[2].partition(".")[0]


def _module_version(python: Path, module: str) -> str:
    """Return where a package is in the environment of that Python; nothing is run or imported for it."""
    prefix = python.parent.parent
    for folder in sorted(prefix.glob("lib*/python3*/site-packages")):
        wheels = sorted(folder.glob(f"{module}*.dist-info"))
        if (folder / module).exists() or wheels:
            return wheels[0].name.removesuffix(".dist-info") if wheels else str(folder / module)
    return ""


def _found(program: str, folder: str | None) -> str | None:
    """Return the program's path, a relative one from the working directory of the command."""
    if "/" in program:
        path = Path(folder or ".") / program
        return str(path) if os.access(path, os.X_OK) else None
    return shutil.which(program)


def _command(program: str, wanted_by: str, folder: str | None) -> Need:
    path = _found(program, folder)
    return Need(
        kind="command",
        name=program,
        wanted_by=wanted_by,
        here=path is not None,
        detail=path or "not on the PATH",
    )


def _model(spec: EngineSpec) -> Iterator[Need]:
    """Yield the model of a catalogue engine: a path here, or a name in the hub's cache."""
    if kind_of(spec.settings) is None or spec.launcher != "process":
        return
    name = text(spec.settings, "model_path", spec.model) or spec.model
    path = Path(text(spec.settings, "cwd", ".") or ".") / Path(name).expanduser()
    if path.exists():
        yield Need(kind="model", name=name, wanted_by=spec.name, here=True, detail=str(path.resolve()))
        yield from _files_of_model(path, name, spec.name)
        return
    cached = _in_hub_cache(name)
    detail = str(cached) if cached else f"neither a path nor in the hub's cache {_hub_cache()}"
    yield Need(kind="model", name=name, wanted_by=spec.name, here=cached is not None, detail=detail)
    if cached:
        yield from _files_of_model(cached, name, spec.name)


def _hub_cache() -> Path:
    own = os.environ.get("HF_HUB_CACHE")
    home = os.environ.get("HF_HOME", str(Path.home() / ".cache" / "huggingface"))
    return Path(own) if own else Path(home) / "hub"


def _in_hub_cache(name: str) -> Path | None:
    """Return the newest snapshot of a model in the Hugging Face cache, whose folders are named by it."""
    folders = _hub_cache() / f"models--{name.replace('/', '--')}" / "snapshots"
    snapshots = sorted(folders.glob("*"), key=lambda path: path.stat().st_mtime)
    return snapshots[-1] if snapshots else None


def _files_of_model(path: Path, name: str, wanted_by: str) -> Iterator[Need]:
    """Yield the weights and the tokenizer of a model's folder; a folder without config.json is none."""
    if not (path / "config.json").exists():
        return
    weights = [file for pattern in _WEIGHTS for file in path.glob(pattern)]
    size_gib = sum(file.stat().st_size for file in weights) / 2**30
    yield Need(
        kind="data",
        name=f"{name} (weights)",
        wanted_by=wanted_by,
        here=bool(weights),
        detail=f"{len(weights)} files, {size_gib:.2f} GiB" if weights else f"no {', '.join(_WEIGHTS)}",
    )
    words = [file for file in _TOKENIZERS if (path / file).exists()]
    yield Need(
        kind="tokenizer",
        name=name,
        wanted_by=wanted_by,
        here=bool(words),
        detail=", ".join(words) or f"none of {', '.join(_TOKENIZERS)}",
    )


def _wheels() -> Iterator[Need]:
    """Yield our own wheel and those that it requires."""
    try:
        names = [_DISTRIBUTION, *(requires(_DISTRIBUTION) or ())]
    except PackageNotFoundError:
        yield Need(kind="wheel", name=_DISTRIBUTION, wanted_by="rackgate", here=False, detail="not installed")
        return
    for line in names:
        if "extra ==" in line:
            continue
        name = re.split(r"[\s<>=!~;\[(]", line, maxsplit=1)[0]
        try:
            yield Need(kind="wheel", name=name, wanted_by="rackgate", here=True, detail=version(name))
        except PackageNotFoundError:
            yield Need(
                kind="wheel", name=name, wanted_by="rackgate", here=False, detail=f"not in {sys.prefix}"
            )
