"""Which readings are worth keeping: every fast one, the others when they change and now and then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackgate.telemetry.reading import CARD_FIELDS, FAST, REQUIRED, Reading

REACH_BACK_NS = 6_000_000_000
"""How far back the last kept value of an unchanged signal can lie, while its source answers."""

_AGAIN_NS = {True: 5_000_000_000, False: 30_000_000_000}  # by whether there is a value


class Thinning:
    """Remembers the last kept reading of each signal, so that unchanged ones are not written again.

    A value that stays is kept every 5 s. A field that has no value is said again every 30 s, unless it
    is required or had a value before: then each sample counts.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Reading] = {}
        self._since: dict[tuple[str, str], int] = {}
        self._seen: dict[tuple[str, str], int] = {}
        self._had_value: set[tuple[str, str]] = set()

    def keep(self, readings: Iterable[Reading]) -> list[Reading]:
        """Return those that are worth keeping, in their order.

        Before one that changed stands its predecessor at the last moment at which it was seen.
        """
        found: list[Reading] = []
        told = list(readings)
        for one in (*told, *self._silenced(told)):
            if one.field in FAST and one.value is not None:
                self._had_value.add((one.entity, one.field))
                found.append(one)
            else:
                found += self._worth(one)
        return found

    def _silenced(self, told: Sequence[Reading]) -> list[Reading]:
        """Return that each signal which a card had is gone, where all that is required of it is.

        A source that lost a card, or is lost, speaks of the required signals alone.
        """
        silent: dict[str, list[Reading]] = {}
        for one in told:
            if one.value is None and one.field in REQUIRED:
                silent.setdefault(one.entity, []).append(one)
        lost = {entity: ones[0] for entity, ones in silent.items() if len(ones) == len(REQUIRED)}
        if not lost:
            return []
        said = {(one.entity, one.field) for one in told}
        return [
            lost[entity]._replace(field=field)
            for entity, field in sorted(self._had_value)
            if entity in lost and field in CARD_FIELDS and (entity, field) not in said
        ]

    def last(self) -> list[Reading]:
        """Return the last kept reading of each slow signal."""
        return list(self._kept.values())

    def settled(self, from_ns: int, until_ns: int) -> list[Reading]:
        """Return what is worth keeping now: until when each slow signal stood, if that is in the stretch.

        What was seen after `until_ns`, unchanged since before it, was so at that moment too.
        """
        found = []
        for signal, kept in self._kept.items():
            seen_ns = min(self._seen[signal], until_ns)
            if seen_ns >= from_ns and seen_ns > self._since[signal] and seen_ns != kept.t_ns:
                found.append(kept._replace(t_ns=seen_ns))
                self._kept[signal] = kept._replace(t_ns=max(kept.t_ns, seen_ns))
        return found

    def _worth(self, reading: Reading) -> list[Reading]:
        signal = (reading.entity, reading.field)
        if reading.value is not None:
            self._had_value.add(signal)
        if reading.field in FAST and (signal in self._had_value or reading.field in REQUIRED):
            return [reading]
        before, seen_ns = self._kept.get(signal), self._seen.get(signal, 0)
        self._seen[signal] = reading.t_ns
        if before is not None and (before.value, before.reason) == (reading.value, reading.reason):
            if reading.t_ns - before.t_ns < _AGAIN_NS[reading.value is not None]:
                return []
            self._kept[signal] = reading
            return [reading]
        self._kept[signal] = reading
        self._since[signal] = reading.t_ns
        stood = [before._replace(t_ns=seen_ns)] if before is not None and seen_ns > before.t_ns else []
        return [*stood, reading]
