"""A column of texts that repeat: a small number per row, and what the numbers stand for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Labels:
    """`codes` index `names`, which are distinct; a missing text is the empty one."""

    codes: NDArray[np.int16]
    names: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Labels:
        """Return the labels of some texts, in their order."""
        known: dict[str, int] = {}
        codes = [known.setdefault(text, len(known)) for text in texts]
        return cls(np.array(codes, dtype=np.int32).astype(_smallest(len(known))), tuple(known))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: NDArray[Any] | slice) -> Labels:
        """Return the labels of some rows, chosen by a mask or by numbers."""
        return Labels(self.codes[rows], self.names)

    @property
    def texts(self) -> NDArray[np.str_]:
        """All texts, one per row: costly for many rows."""
        names = np.array(self.names or ("",), dtype=np.str_)
        return np.asarray(names[self.codes])

    def are(self, wanted: Collection[str]) -> NDArray[np.bool_]:
        """Return which rows have one of these texts."""
        lookup = np.array([name in wanted for name in self.names] or [False], dtype=np.bool_)
        if lookup.all():
            return np.ones(len(self.codes), dtype=np.bool_)
        numbers = np.flatnonzero(lookup)
        if len(numbers) < 2:
            return np.asarray(self.codes == (numbers[0] if len(numbers) else -1))
        return np.take(lookup, self.codes)

    def counts(self) -> dict[str, int]:
        """Return how many rows have each text that occurs, by the text's order."""
        counted = np.bincount(self.codes, minlength=len(self.names))
        return {name: int(count) for name, count in sorted(zip(self.names, counted, strict=False)) if count}

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        """Return the rows of all parts, one after the other."""
        names = tuple(dict.fromkeys(name for part in parts for name in part.names))
        place = {name: number for number, name in enumerate(names)}
        kind = _smallest(len(names))
        codes = [
            np.array([place[name] for name in part.names] or [0], dtype=kind)[part.codes] for part in parts
        ]
        return cls(np.concatenate(codes) if codes else np.zeros(0, dtype=kind), names)


def _smallest(count: int) -> Any:
    return np.int16 if count < 2**15 else np.int32
