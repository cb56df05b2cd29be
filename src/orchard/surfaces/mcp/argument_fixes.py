"""What callers get wrong and what they clearly meant: put right before anything is checked, and told.

The schema of the tool says what is wanted. A repair is made only where one reading is left: the value does not fit
as it is, and there is exactly one way in which it would. Everything else is left to the check, which refuses it.

    keys      camelCase, names that other orchestrators use
    text      a JSON object or list as text, numbers and booleans as text, closing tags of the caller's own markup
    lists     one thing where a list of such things is wanted
    null      where a field cannot be null it was meant to be left out
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.planfile.forms import OTHER_NAMES
from orchard.surfaces.mcp.aliases import ARGUMENTS, VALUES
from orchard.text import quoted

NOTES = 8
"""How many repairs are told one by one."""

_TAGS = "invoke|parameter|parameters|function_calls|function_call|tool_call|tool_use|tool|arg|argument|antml:\\w+"
_DEBRIS = re.compile(rf"(?:\s*</(?:{_TAGS})\s*>)+\s*\Z")
_CLOSING = re.compile(rf"</({_TAGS})\s*>")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?")
_OWN_NAMES = {other: own for own, other in OTHER_NAMES.items()}
_WORK_KEYS = frozenset({"type", "command", "executable", "instructions", "instructions_file", "instructionsFile"})


class Repair(Struct):
    """Values on their way from what was given to what is meant, and what was done to them."""

    definitions: Mapping[str, Json]
    asked_null: frozenset[str] = frozenset()
    """Fields of the tool itself whose null has two meanings: it is left as it is, and refused."""
    notes: dict[str, None] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    """What the caller called a field, by its place; "" for a list that was made of one entry."""

    def told(self) -> list[str]:
        """What was put right, in a few sentences."""
        found = list(self.notes)
        more = len(found) - NOTES
        return [*found[:NOTES], *([f"... and {more} more repairs of this kind"] if more > 0 else [])]

    def as_given(self, path: str) -> str:
        """A place as the caller wrote it: by the caller's own names, and without the lists that were made here."""
        own, said = "", ""
        if not self.given:
            return path
        for part in re.findall(r"\[\d+\]|[^.\[]+|\[", path):
            if part.startswith("["):
                said += "" if self.given.get(own + part) == "" else part
                own += part
            else:
                own = f"{own}.{part}" if own else part
                name = self.given.get(own, part)
                said = f"{said}.{name}" if said else name
        return said

    def note(self, path: str, what: str) -> None:
        self.notes[f"{path}: {what}"] = None

    def value(self, value: Any, schema: Json, path: str, depth: int = 0) -> Any:
        """One value as its schema wants it, if that is clear."""
        if depth > limits.NESTING:
            return value
        forms = self._forms(schema)
        if isinstance(value, str):
            value = self._text(value, forms, path)
        if isinstance(value, float) and value.is_integer() and _wants(forms, "integer") and not _wants(forms, "number"):
            value = int(value)
        value = self._listed(value, forms, path)
        if isinstance(value, dict):
            return self._object(value, forms, path, depth)
        if isinstance(value, list):
            inner: Json = next((form["items"] for form in forms if isinstance(form.get("items"), dict)), {})
            return [self.value(item, inner, f"{path}[{number}]", depth + 1) for number, item in enumerate(value)]
        return value

    # ------------------------------------------------------------------------------------- forms

    def _forms(self, schema: Json) -> list[Json]:
        """The forms that a value may have, with references followed."""
        waiting, found, seen = [schema], [], set()
        while waiting:
            one = waiting.pop(0)
            reference = one.get("$ref")
            if isinstance(reference, str):
                if reference not in seen:
                    seen.add(reference)
                    waiting.append(self.definitions.get(reference.rpartition("/")[2], {}))
                continue
            inner = one.get("oneOf") or one.get("anyOf")
            if inner and "properties" not in one:
                waiting += inner
            else:
                found.append(one)
        return found

    # -------------------------------------------------------------------------------------- text

    def _text(self, text: str, forms: list[Json], path: str) -> Any:
        text = self._without_debris(text, path)
        if (choices := [choice for form in forms for choice in form.get("enum", ())]) and text not in choices:
            return self._choice(text, choices, path)
        if _fits_text(text, forms):
            return self._hidden_object(text, forms, path)
        stripped = text.strip()
        if _wants(forms, "boolean") and stripped.lower() in ("true", "false"):
            self.note(path, f"{quoted(text)} was read as {stripped.lower()}")
            return stripped.lower() == "true"
        if (_wants(forms, "integer") or _wants(forms, "number")) and _NUMBER.fullmatch(stripped):
            number = float(stripped)
            if number.is_integer() or _wants(forms, "number"):
                self.note(path, f"{quoted(text)} was read as a number")
                return int(stripped) if "." not in stripped else (int(number) if number.is_integer() else number)
        for wanted, kind in (("object", dict), ("array", list)):
            parsed = _parsed(stripped) if _wants(forms, wanted) else None
            if isinstance(parsed, kind):
                self.note(path, f"the text was read as a JSON {wanted}")
                return parsed
        return text

    def _hidden_object(self, text: str, forms: list[Json], path: str) -> Any:
        """Text would do, but this text is an object (or a list) in disguise: no command line begins like that."""
        stripped = text.strip()
        if stripped.startswith("{") and _wants(forms, "object"):
            parsed = _parsed(stripped)
            if isinstance(parsed, dict) and _WORK_KEYS & parsed.keys():
                self.note(path, "the text was read as a JSON object")
                return parsed
        if stripped.startswith("[") and _wants(forms, "array"):
            parsed = _parsed(stripped)
            if isinstance(parsed, list) and all(isinstance(item, str | dict) for item in parsed):
                self.note(path, "the text was read as a JSON list")
                return parsed
        return text

    def _without_debris(self, text: str, path: str) -> str:
        """Closing tags at the very end that nothing in the text opened are the caller's own markup."""
        found = _DEBRIS.search(text)
        if found is None:
            return text
        kept = text[: found.start()]
        if any(f"<{tag[1]}" in kept for tag in _CLOSING.finditer(found[0])) or not kept.strip():
            return text
        self.note(path, f"{quoted(found[0].strip())} at the end was left out")
        return kept

    def _choice(self, text: str, choices: list[Any], path: str) -> str:
        name = re.sub(r"\[\d+\]\Z", "", path).rpartition(".")[2]
        plain = re.sub(r"[\s_]+", "-", text.strip().lower())
        meant = VALUES.get((name, text.strip().lower()))
        same = [choice for choice in choices if isinstance(choice, str) and choice.replace("_", "-") == plain]
        if meant is None and len(same) == 1:
            meant = same[0]
        if meant is None or meant not in choices:
            return text
        self.note(path, f"{quoted(text)} was read as {quoted(meant)}")
        return meant

    # ------------------------------------------------------------------------- lists and objects

    def _listed(self, value: Any, forms: list[Json], path: str) -> Any:
        """One thing where only a list of such things will do."""
        if value is None or isinstance(value, list) or not _wants(forms, "array"):
            return value
        if any(_kind(value) == form.get("type") or "type" not in form for form in forms):
            return value
        items: Json = next((form.get("items", {}) for form in forms if form.get("type") == "array"), {})
        if not _wants(self._forms(items), _kind(value)):
            return value
        self.note(path, "one entry was given where a list is wanted; it was read as a list of one")
        self.given[f"{path}[0]"] = ""
        return [value]

    def _object(self, value: Json, forms: list[Json], path: str, depth: int) -> Json:
        shaped = [form for form in forms if "properties" in form]
        known: Json = {}
        for form in _meant(value, shaped):
            known = {**known, **form["properties"]}
        if not known:
            return value
        made: Json = {}
        for key, inner in self._keys(value, known, path).items():
            here = f"{path}.{key}" if path else key
            if inner is None and key in known and not self._may_be_null(known[key]):
                if depth > 0 or key not in self.asked_null:
                    self.note(here, "null was taken to mean that it is left out")
                    continue
                made[key] = None
                continue
            made[key] = self.value(inner, known[key], here, depth + 1) if key in known else inner
        return made

    def _may_be_null(self, schema: Json) -> bool:
        return any(form.get("type") == "null" or "type" not in form for form in self._forms(schema))

    def _own_name(self, key: str, value: Any, known: Json) -> str | None:
        """What a field is called here that was given another name: of several, the first that such a value fits."""
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower()
        if snake in known:
            return snake
        own = _OWN_NAMES.get(snake)
        if own in known:
            return own
        names = [name for name in ARGUMENTS.get(snake, ()) if name in known]
        fitting = (name for name in names if value is None or self._may_be(known[name], _kind(value)))
        return next(fitting, names[0] if names else None)

    def _may_be(self, schema: Json, kind: str) -> bool:
        forms = self._forms(schema)
        return _wants(forms, kind) or any("type" not in form for form in forms)

    def _keys(self, value: Json, known: Json, path: str) -> Json:
        """The fields by the names that they have here; a name that would be given twice stays as it is."""
        renamed = {key: self._own_name(key, inner, known) for key, inner in value.items() if key not in known}
        made: Json = {}
        for key, inner in value.items():
            name = renamed.get(key)
            if name is None or name in value or list(renamed.values()).count(name) > 1:
                made[key] = inner
            else:
                self.note(f"{path}.{key}" if path else key, f"is called {quoted(name)} here")
                self.given[f"{path}.{name}" if path else name] = key
                made[name] = inner
        return made


def _meant(value: Json, forms: list[Json]) -> list[Json]:
    """The form of an object that its `type` names, or all of them."""
    named = [form for form in forms if form["properties"].get("type", {}).get("const") == value.get("type", "")]
    return named or forms


def _wants(forms: list[Json], kind: str) -> bool:
    kinds = [form.get("type") for form in forms]
    return any(kind == one or (isinstance(one, list) and kind in one) for one in kinds)


def _fits_text(text: str, forms: list[Json]) -> bool:
    """Whether one of the forms is text, and this is such a text."""
    for form in forms:
        if "type" not in form and not form.get("const"):
            return True  # anything will do
        kinds = form.get("type")
        if kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
            pattern = form.get("pattern")
            several = len(forms) > 1
            if not (pattern and several) or re.search(pattern, text):
                return True
    return False


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _parsed(text: str) -> Any:
    """The JSON value in a text, None where there is none."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
