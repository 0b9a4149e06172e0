"""The first `rack.toml` of an inspected machine: each key explained, and the reason for what is missing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable

from rackgate.discovery.card_assignment import cards_by_engine
from rackgate.discovery.machine import FoundCard, Machine, Service

_WHERE = {
    "nvml": "read from the driver's library on this machine",
    "nvidia-smi": "read from nvidia-smi, one process a look: NVML does not answer here",
}


def rack_text(machine: Machine) -> str:
    """Return the text of a target file that `rackgate.config.target_file` reads without a problem."""
    engines = machine.of_kind("engine")
    cards = cards_by_engine(engines, machine.inventory.cards, machine.busy, machine.parents)
    parts = [
        _head(machine),
        _about(machine, engines),
        _node(machine),
        *(_card(card) for card in machine.inventory.cards),
        *(_engine(engine, machine, cards.get(engine.port, ())) for engine in engines),
        _no_engine() if not engines else "",
        *(_locked(service) for service in machine.of_kind("locked")),
        _rest(machine, engines),
    ]
    return "\n".join(part for part in parts if part)


def _head(machine: Machine) -> str:
    lines = [
        f"What `rackgate init` found on {machine.host}. Facts only: bounds stand in the acceptance file.",
        "Check it, then ask what would run and what would stay UNKNOWN: rackgate doctor FILE",
    ]
    if not machine.inventory.cards:
        lines += ["", f"No accelerator was found: {machine.inventory.why or 'nobody names one'}"]
        lines += [f"  {step.name}: {step.text}. {step.next_step}" for step in machine.triage if not step.ok]
    return _comment(lines)


def _about(machine: Machine, engines: tuple[Service, ...]) -> str:
    lines = ["[target]", f"name = {_quoted(machine.host)}"]
    model = _usual_model(engines)
    if model:
        lines.append(f"model = {_quoted(model)}  # what requests ask for, as /v1/models lists it")
    else:
        lines.append(
            '# model = "..."  # what requests ask for, as /v1/models lists it; needed with an engine'
        )
    lines += [
        '# vantage = "operator"    # what the tester sees: operator, tenant or endpoint',
        '# may_break = ["engine"]  # lets fault injection kill engines that the run itself can start again',
    ]
    return _block(lines)


def _node(machine: Machine) -> str:
    found, exporters = machine.inventory, machine.of_kind("exporter")
    lines = ["[[node]]", f"name = {_quoted(machine.host)}"]
    if not found.cards:
        lines.append(
            "cards = 0  # declares that it has none; with cards: their number, or one [[node.card]] each"
        )
    if exporters:
        lines.append(f"exporter = {_quoted(exporters[0].url)}  # its dcgm-exporter's page")
        others = ", ".join(str(one.port) for one in exporters[1:])
        lines += [f"# other pages like it are on the ports {others}"] if others else []
    else:
        lines.append('# exporter = "http://127.0.0.1:9400/metrics"  # no dcgm-exporter answers here')
    lines += ["", "[node.telemetry]", "local = true  # its files, commands and kernel log may be read here"]
    if found.source in _WHERE:
        lines.append(f"cards = {_quoted(found.source)}  # {_WHERE[found.source]}")
    lines.append("# sudo = true   # try `sudo -n` where a command is refused")
    lines += [_one_line(f"# {note}") for note in machine.notes]
    lines += _expected(machine)
    lines += [
        "",
        "# Its management controller, for power supplies, fans and leaks; a host does not know its address.",
        "# [node.redfish]",
        '# url = "https://BMC"',
        '# user_env = "BMC_USER"          # names of variables that hold a read-only login',
        '# password_env = "BMC_PASSWORD"',
    ]
    return _block(lines)


def _expected(machine: Machine) -> list[str]:
    """Return the versions of this machine as a commented table: a person decides what is expected."""
    if not machine.versions:
        return []
    return [
        "",
        "# What it has now; of what stands here without the # it is asked whether it still has it.",
        "# [node.expect]",
        *(_one_line(f"# {pin} = {_quoted(value)}") for pin, value in machine.versions.items()),
        '# processes = ["VLLM::*", "python3"]  # programs that may hold a card',
    ]


def _card(card: FoundCard) -> str:
    lines = [f"[[node.card]]{_one_line(f'  # {card.links}') if card.links else ''}", f"index = {card.index}"]
    texts = {"uuid": card.uuid, "serial": card.serial, "pci": card.pci, "sku": card.name}
    lines += [f"{name} = {_quoted(value)}" for name, value in texts.items() if value]
    silent = [name for name, value in texts.items() if not value]
    lines += [f"# not told here: {', '.join(silent)}"] if silent else []
    return _block(lines)


def _engine(engine: Service, machine: Machine, cards: tuple[int, ...]) -> str:
    container = next((one for one in machine.containers if engine.port in one.ports), None)
    who = f"container {container.name}, image {container.image}" if container else engine.owner
    lines = [_one_line(f"# {who}")] if who else []
    lines += [
        "[[engine]]",
        f"name = {_quoted(f'engine-{engine.port}')}",
        'launcher = "remote"  # it runs already',
        f"url = {_quoted(engine.url)}",
    ]
    if engine.protocol != "openai":
        lines.append(f"protocol = {_quoted(engine.protocol)}")
    if engine.models[0] != _usual_model(machine.of_kind("engine")):
        lines.append(f"model = {_quoted(engine.models[0])}")
    if len(engine.models) > 1:
        lines.append(_one_line(f"# it serves also: {', '.join(engine.models[1:8])}"))
    if not machine.inventory.cards and not _has_device(machine):
        lines.append('pool = "cpu"  # no accelerator was found here')
    elif cards:
        names = ", ".join(_quoted(f"{machine.host}/gpu{index}") for index in cards)
        lines.append(f"cards = [{names}]  # where its processes are, or what its environment lets it see")
    else:
        lines.append(
            f'# cards = ["{machine.host}/gpu0"]  # which could not be seen; without, it proves no card'
        )
    return _block(lines)


def _no_engine() -> str:
    return _comment(
        [
            "No engine listens here: preflight looks at the machine alone, later stages have nothing to ask.",
            "[[engine]]",
            'name = "engine-0"',
            'launcher = "remote"             # runs already; or process, container, kubernetes',
            'url = "http://127.0.0.1:8000"',
        ]
    )


def _locked(service: Service) -> str:
    return _comment(
        [
            f"Port {service.port} wants a key before it lists models; if it is an engine:",
            "[[engine]]",
            f'name = "engine-{service.port}"',
            'launcher = "remote"',
            f'url = "{service.url}"',
            'api_key_env = "ENGINE_KEY"  # the name of the variable, never the key',
        ]
    )


def _rest(machine: Machine, engines: tuple[Service, ...]) -> str:
    lines: list[str] = []
    if engines:
        lines += [
            "If one of the engines above is the gateway that users call, make it this instead:",
            "[gateway]",
            f'url = "{engines[-1].url}"',
            'served_by_header = "x-served-by"',
            "",
        ]
    for server in machine.of_kind("prometheus"):
        lines += [
            "A Prometheus answers here; if it scrapes the cards' exporters:",
            "[telemetry]",
            f'prometheus = "{server.url}"',
            "",
        ]
    if machine.containers:
        lines.append("Containers that run here:")
        lines += [
            f"  {one.name}  {one.image}  {', '.join(f'port {port}' for port in one.ports)}".rstrip()
            for one in machine.containers
        ]
    return _comment(lines)


def _has_device(machine: Machine) -> bool:
    return any(step.name == "device" and step.ok for step in machine.triage)


def _usual_model(engines: tuple[Service, ...]) -> str:
    counted = Counter(engine.models[0] for engine in engines)
    return counted.most_common(1)[0][0] if counted else ""


def _block(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _comment(lines: Iterable[str]) -> str:
    listed = [_one_line(f"# {line}".rstrip()) for line in lines]
    return _block(listed) if listed else ""


def _one_line(text: str) -> str:
    """Return a text without control characters, as one line of a comment."""
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f]+", " ", text)


def _quoted(text: str) -> str:
    """Return a TOML string: TOML has the escapes of JSON, except for DEL."""
    whole = text.encode("utf-8", "replace").decode()
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")
