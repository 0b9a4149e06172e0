"""Dictionary-encoded columns of repeating strings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class DictionaryColumn:
    """A dictionary-encoded column: `codes` index the distinct `names`; a missing string is empty."""

    codes: NDArray[np.int16]
    names: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> DictionaryColumn:
        """Return the column of some strings, in their order."""
        known: dict[str, int] = {}
        codes = [known.setdefault(text, len(known)) for text in texts]
        return cls(np.array(codes, dtype=np.int32).astype(_smallest(len(known))), tuple(known))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: NDArray[Any] | slice) -> DictionaryColumn:
        """Return the rows of a mask, of a slice or of row numbers."""
        return DictionaryColumn(self.codes[rows], self.names)

    @property
    def texts(self) -> NDArray[np.str_]:
        """All strings, one per row: expensive for many rows."""
        names = np.array(self.names or ("",), dtype=np.str_)
        return np.asarray(names[self.codes])

    def isin(self, wanted: Collection[str]) -> NDArray[np.bool_]:
        """Return the mask of rows that have one of these strings."""
        lookup = np.array([name in wanted for name in self.names] or [False], dtype=np.bool_)
        if lookup.all():
            return np.ones(len(self.codes), dtype=np.bool_)
        numbers = np.flatnonzero(lookup)
        if len(numbers) < 2:
            return np.asarray(self.codes == (numbers[0] if len(numbers) else -1))
        return np.take(lookup, self.codes)

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each string that occurs, sorted by string."""
        counted = np.bincount(self.codes, minlength=len(self.names))
        return {name: int(count) for name, count in sorted(zip(self.names, counted, strict=False)) if count}

    @classmethod
    def concat(cls, parts: Sequence[DictionaryColumn]) -> DictionaryColumn:
        """Return the concatenation of some columns."""
        names = tuple(dict.fromkeys(name for part in parts for name in part.names))
        place = {name: number for number, name in enumerate(names)}
        kind = _smallest(len(names))
        codes = [
            np.array([place[name] for name in part.names] or [0], dtype=kind)[part.codes] for part in parts
        ]
        return cls(np.concatenate(codes) if codes else np.zeros(0, dtype=kind), names)


def _smallest(count: int) -> Any:
    return np.int16 if count < 2**15 else np.int32
