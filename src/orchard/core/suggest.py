"""Words for messages: what was written, safe to print, and what was probably meant."""

from collections.abc import Iterable

_SHOWN = 60
# Similarity costs the product of both lengths: nobody mistypes a name that is longer than this.
_COMPARED = 80


def quoted(text: str) -> str:
    """Text from outside in quotes: cut short, and with nothing in it that could move a cursor."""
    shown = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return "'" + "".join(_visible(character) for character in shown) + "'"


def one_of(words: Iterable[str]) -> str:
    """The words as a choice: `'a', 'b' or 'c'`."""
    *first, last = (quoted(word) for word in words)
    return f"{', '.join(first)} or {last}" if first else last


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one, if any is like it at all."""
    if len(word) > _COMPARED:
        return None
    by_fold = {other.casefold(): other for other in known}
    from difflib import get_close_matches  # only a mistake pays for it

    found = get_close_matches(word.casefold(), by_fold, n=1, cutoff=0.6)
    return by_fold[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word; empty if nothing is near."""
    found = nearest(word, known)
    return f"; did you mean {quoted(found)}?" if found is not None else ""


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
