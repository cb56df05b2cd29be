"""Regular expressions that are compiled when they are first used.

A module that knows many of them costs every command milliseconds, and most commands use none.
"""

import re
from typing import Any, AnyStr, Generic, cast


class _Later(Generic[AnyStr]):
    def __init__(self, pattern: AnyStr, flags: int) -> None:
        self._given: tuple[AnyStr, int] = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        """Called for what the object does not have yet: each method is looked up once."""
        found = getattr(re.compile(*self._given), name)
        setattr(self, name, found)
        return found


def later(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The same as `re.compile`, for use by its methods; whether the pattern is one is seen at the first of them."""
    return cast("re.Pattern[AnyStr]", _Later(pattern, flags))
