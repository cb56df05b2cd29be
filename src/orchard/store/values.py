"""Known values in a text: all of them are looked for at once, so that many cost hardly more than one.

The text is read as words of eight bytes, or of four. A value that is long enough covers at least one whole word
wherever it begins, and it has one such word for each way to begin. So the words of the text tell which values may be in
it, and only those are searched for.

    Values   a set of values; `spans` says where they are
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

Kind = Literal["Q", "I"]

WORDS: tuple[tuple[int, Kind], ...] = ((8, "Q"), (4, "I"))
"""Sizes of words and how `memoryview` calls them, the one that tells more first."""

Span = tuple[int, int]


class Values:
    """Values to look for, the longest first."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self.all = tuple(sorted(set(values), key=len, reverse=True))
        self._indexes: list[_Index] = []
        rest: Sequence[bytes] = self.all
        for size, kind in WORDS:
            self._indexes.append(_Index(size, kind, [value for value in rest if len(value) >= 2 * size - 1]))
            rest = [value for value in rest if len(value) < 2 * size - 1]
        self._short = rest

    def spans(self, text: bytes) -> Iterator[Span]:
        candidates = [value for index in self._indexes for value in index.candidates(text)]
        for value in (*candidates, *self._short):
            start = text.find(value)
            while start >= 0:
                yield start, start + len(value)
                start = text.find(value, start + len(value))


class _Index:
    """Which values a word may come from."""

    def __init__(self, size: int, kind: Kind, values: Iterable[bytes]) -> None:
        self._size, self._kind = size, kind
        self._by_word: dict[int, list[bytes]] = {}
        for value in values:
            # From the middle: values often begin alike (`sk-ant-api03-...`), so their beginnings tell little.
            first = (len(value) - (2 * size - 1)) // 2
            for at in range(first, first + size):
                word = memoryview(value[at : at + size]).cast(kind)[0]
                self._by_word.setdefault(word, []).append(value)
        self._words = frozenset(self._by_word)

    def candidates(self, text: bytes) -> Iterable[bytes]:
        """The values of which the text has a word."""
        if not self._words:
            return ()
        words = memoryview(text)[: len(text) - len(text) % self._size].cast(self._kind)
        return dict.fromkeys(value for word in self._words.intersection(words) for value in self._by_word[word])
