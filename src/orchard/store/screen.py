"""Text of strangers, made fit for a screen. Every command needs it, so it stands apart from looking for secrets."""

import re

_CONTROLS = re.compile(
    r"(?P<color>\x1b\[[0-9;:]{0,64}m)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # cursor, screen, modes
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # title, clipboard, links
    r"|\x1b[ -/]*[0-Z\\^-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]"
    r"|[\U000e0000-\U000e007f]"
)
_HALF_PAIRS = re.compile("[\ud800-\udfff]")
_NO_COLOR = "\x1b[0m"


def for_screen(text: str, *, keep_colors: bool = False) -> str:
    """Text from a log or a name with nothing in it that a terminal or a reader's eye would obey.

    Lines and tabs stay; with `keep_colors` colours do too, and end with the text.
    """
    if text.isprintable():
        return text
    # A line that is written over becomes one of its own: what stood apart must not be read as one.
    text = _HALF_PAIRS.sub("\ufffd", text).replace("\r\n", "\n").replace("\r", "\n")
    if not keep_colors:
        return _CONTROLS.sub("", text)
    shown = _CONTROLS.sub(lambda match: match["color"] or "", text)
    return shown + _NO_COLOR if "\x1b" in shown else shown
