"""Making foreign text safe to show: names of programs and their arguments are whatever their author wanted."""


def plain(text: str, limit: int = 200) -> str:
    """One line without control characters, escape sequences or broken encoding, cut at `limit` characters."""
    shown = "".join(each if each.isprintable() else " " for each in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
