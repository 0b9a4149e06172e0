"""The image of a container engine: found, pulled if that is allowed, and pinned by its digest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackgate.engines.launchers.outcome import start_refused
from rackgate.nouns.target import EngineSpec

if TYPE_CHECKING:
    import docker


_TELL_EVERY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that is here. `digest` pins it: of the registry, or its own id if it never was in one."""

    name: str
    ident: str
    digest: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def image_of(name: str, attributes: Mapping[str, Any]) -> Image:
    """Return the image as the daemon describes it; with several registry digests, that of its own name."""
    ident = str(attributes["Id"])
    digests = [str(digest) for digest in attributes.get("RepoDigests") or ()]
    repository = name.partition("@")[0]
    repository = repository.rpartition(":")[0] if ":" in repository.rpartition("/")[2] else repository
    own = [digest for digest in digests if digest.partition("@")[0] == repository]
    configuration = attributes.get("Config") or {}
    return Image(
        name=name,
        ident=ident,
        digest=(own or digests or [ident])[0].rpartition("@")[2],
        entrypoint=tuple(configuration.get("Entrypoint") or ()),
        command=tuple(configuration.get("Cmd") or ()),
    )


def resolve_image(
    spec: EngineSpec, client: docker.DockerClient, name: str, pull: str, tell: Callable[[str], None]
) -> Image:
    """Return the image by that name; `pull` is `never`, `missing` or `always`. Raises `LaunchFailed`."""
    from docker.errors import ImageNotFound

    if pull == "always":
        _pull(spec, client, name, tell)
    try:
        return image_of(name, client.images.get(name).attrs)
    except ImageNotFound as error:
        if pull == "never":
            raise start_refused(
                spec,
                "container",
                f"the image {name} is not on this machine",
                f"run `docker pull {name}` or build it; pull = 'missing' lets the launcher do it",
            ) from error
    _pull(spec, client, name, tell)
    return image_of(name, client.images.get(name).attrs)


def _pull(spec: EngineSpec, client: docker.DockerClient, name: str, tell: Callable[[str], None]) -> None:
    """Pull with the registry login of Docker's own configuration."""
    from docker.errors import DockerException
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(name)
    hint = "check the image's name, the way to its registry, and `docker login`"
    try:
        lines = client.api.pull(repository, tag=tag or "latest", stream=True, decode=True)
        refusal = PullProgress(name, tell).follow(lines)
    except (DockerException, OSError) as error:
        said = getattr(error, "explanation", None) or error
        raise start_refused(spec, "container", f"pulling {name}: {said}", hint) from error
    if refusal:
        raise start_refused(spec, "container", f"pulling {name}: {refusal}", hint)


class PullProgress:
    """Adds up what the daemon tells of each layer."""

    def __init__(self, name: str, tell: Callable[[str], None]) -> None:
        self._name = name
        self._tell = tell
        self._layers: dict[str, tuple[int, int]] = {}
        self._told = 0.0

    def follow(self, lines: Iterable[Mapping[str, Any]]) -> str:
        """Read the daemon's lines to the end; return its refusal, empty if it pulled."""
        for line in lines:
            if line.get("error"):
                return str(line["error"])
            detail = line.get("progressDetail") or {}
            if line.get("status") == "Downloading" and detail.get("total"):
                self._layers[str(line.get("id"))] = (int(detail["current"]), int(detail["total"]))
                self._tell_now_and_then()
        self._tell(f"pulled {self._name}")
        return ""

    def _tell_now_and_then(self) -> None:
        if time.monotonic() - self._told < _TELL_EVERY_S:
            return
        self._told = time.monotonic()
        done = sum(current for current, _ in self._layers.values())
        total = sum(size for _, size in self._layers.values())
        self._tell(f"pulling {self._name}: {done / 2**30:.1f} of {total / 2**30:.1f} GiB seen so far")
