"""What a cluster says of an engine's pod, read as one answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_HOPELESS = (
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """`ended` says why no token will come, `waiting` what it still waits for; both may be empty.

    `settled` is False for an end that the scheduler may still undo, such as a lack of free cards.
    """

    pod: str = ""
    host_ip: str = ""
    running: bool = False
    image_id: str = ""
    ended: str = ""
    waiting: str = ""
    settled: bool = True


def pod_state(deployment: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> PodState:
    """Return the state of the newest pod that is not being deleted."""
    living = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    if not living:
        return _without_pod(deployment)
    pod = max(living, key=lambda one: str(one["metadata"].get("creationTimestamp", "")))
    status = pod.get("status") or {}
    statuses = status.get("containerStatuses") or [{}]
    ended, settled = _end_of(status, statuses[0])
    return PodState(
        pod=str(pod["metadata"]["name"]),
        host_ip=str(status.get("hostIP") or ""),
        running="running" in (statuses[0].get("state") or {}),
        image_id=str(statuses[0].get("imageID") or ""),
        ended=ended,
        waiting=_waiting_of(statuses[0]) or str(status.get("phase") or ""),
        settled=settled,
    )


def _without_pod(deployment: Mapping[str, Any]) -> PodState:
    """Say why there is no pod: a profile or a quota that refuses it stands in the Deployment's conditions."""
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return PodState(ended=f"{condition.get('reason')}: {condition.get('message')}")
    return PodState(waiting="no pod yet")


def _end_of(status: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[str, bool]:
    for name in ("state", "lastState"):
        terminated = (container.get(name) or {}).get("terminated")
        if terminated:
            reason = terminated.get("reason") or ""
            why = f" ({reason})" if reason not in ("", "Error", "Completed") else ""
            return f"exit code {terminated.get('exitCode')}{why}", True
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") in _HOPELESS:
        return f"{waiting['reason']}: {waiting.get('message') or ''}".rstrip(": "), True
    if status.get("phase") == "Failed":
        return f"{status.get('reason') or 'Failed'}: {status.get('message') or ''}".rstrip(": "), True
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return f"Unschedulable: {condition.get('message')}", False
    return "", True


def _waiting_of(container: Mapping[str, Any]) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    return ": ".join(str(waiting[key]) for key in ("reason", "message") if waiting.get(key))


def event_lines(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each event, the oldest first."""
    ordered = sorted(
        events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or "")
    )
    return [
        f"event {event.get('type')} {event.get('reason')}: {' '.join(str(event.get('message')).split())}"
        for event in ordered
    ]
