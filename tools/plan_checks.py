"""Writes src/orchard/planfile/checks.py from the models of a plan file: what they check, for a reader without pydantic.

It reads what pydantic has made of the models, and knows each kind of check that is in there: of one that it does not
know it says so and writes nothing.

python tools/plan_checks.py            write it
python tools/plan_checks.py --check    exit 1 if it is not what would be written
"""

import pprint
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from orchard.planfile import fields, forms, rules

MODULE = Path(__file__).parent.parent / "src" / "orchard" / "planfile" / "checks.py"

OPENING = '''\
"""What the models of `fields` check, as a table. Written by tools/plan_checks.py: change those models, or that program.

Each kind of object has its fields with the names and the check of each, the fields that are needed, and the rules for
all of them together. `given` says what the checks are.
"""

from typing import Any

# fmt: off
'''

Check = tuple[Any, ...]
Schema = dict[str, Any]

# What is no check: descriptions, and how values are built and written again.
SILENT = {"metadata", "ref", "serialization", "type", "json_schema_input_schema"}


class Table:
    def __init__(self) -> None:
        self.kinds: dict[str, Any] = {}
        self.work: Check = ()
        """A work has many places."""
        self._known: dict[str, Schema] = {}

    def check(self, schema: Schema) -> Check:
        """The check that a schema of pydantic stands for."""
        made: Check = getattr(self, "_" + schema["type"].replace("-", "_"))(schema)
        return made

    def _definitions(self, schema: Schema) -> Check:
        only(schema, "schema", "definitions")
        self._known |= {one["ref"]: one for one in schema["definitions"]}
        return self.check(schema["schema"])

    def _definition_ref(self, schema: Schema) -> Check:
        only(schema, "schema_ref")
        return self.check(self._known[schema["schema_ref"]])

    def _function_after(self, schema: Schema) -> Check:
        """A rule that is applied to a text; those of an object are read with it."""
        inner = schema
        after: list[Any] = []
        while inner["type"] == "function-after":
            only(inner, "function", "schema")
            after.insert(0, function(inner["function"]))
            inner = inner["schema"]
        if inner["type"] == "model":
            return self._model(inner, tuple(name_of(one, methods=True) for one in after))
        check = self.check(inner)
        if check[0] != "text":
            raise SystemExit(f"A rule after {check} is not known.")
        return (*check, *(name_of(one) for one in after))

    def _function_plain(self, schema: Schema) -> Check:
        only(schema, "function")
        return ("rule", name_of(function(schema["function"])))

    def _str(self, schema: Schema) -> Check:
        only(schema, "min_length", "max_length")
        return ("text", schema.get("min_length", 0), schema.get("max_length"))

    def _bool(self, schema: Schema) -> Check:
        only(schema)
        return ("truth",)

    def _int(self, schema: Schema) -> Check:
        only(schema, "ge", "gt", "le")
        return ("whole", schema["ge"] if "ge" in schema else schema["gt"] + 1, schema["le"])

    def _float(self, schema: Schema) -> Check:
        only(schema, "gt")
        return ("number", schema["gt"])

    def _literal(self, schema: Schema) -> Check:
        only(schema, "expected")
        if not all(type(one) is str for one in schema["expected"]):
            raise SystemExit(f"Choices that are no text are not known: {schema['expected']}")
        return ("choice", *schema["expected"])

    def _list(self, schema: Schema) -> Check:
        only(schema, "items_schema", "max_length")
        return ("list", self.check(schema["items_schema"]), schema.get("max_length"))

    def _dict(self, schema: Schema) -> Check:
        only(schema, "keys_schema", "values_schema")
        return ("names", self.check(schema["keys_schema"]), self.check(schema["values_schema"]))

    def _tagged_union(self, schema: Schema) -> Check:
        only(schema, "choices", "discriminator", "custom_error_type", "custom_error_message")
        chooses: Any = schema["discriminator"]
        name: str = chooses.__name__
        if vars(forms).get(name) != chooses:
            raise SystemExit(f"What chooses a form belongs into forms.py: {chooses}")
        made = ("form", name, {form: self.check(one) for form, one in schema["choices"].items()})
        if name != forms.form_of_work.__name__:
            return made
        if self.work not in ((), made):
            raise SystemExit(f"Works differ: {made}")
        self.work = made
        return ("work",)

    def _model(self, schema: Schema, after: tuple[str, ...] = ()) -> Check:
        only(schema, "cls", "schema", "config", "custom_init", "root_model")
        kind = schema["cls"].__name__
        if {name: schema["config"].get(name) for name in ("extra_fields_behavior", "strict")} != {
            "extra_fields_behavior": "forbid",
            "strict": True,
        } or set(schema["config"]) - {"extra_fields_behavior", "strict", "title"}:
            raise SystemExit(f"{kind} is not as strict as the others, or in another way.")
        if schema["custom_init"] or schema["root_model"]:
            raise SystemExit(f"{kind} is made in its own way, which is not known.")
        if kind not in self.kinds:
            self.kinds[kind] = None  # groups hold groups
            inner = schema["schema"]
            only(inner, "fields", "model_name", "computed_fields")
            own = {name: self._field(name, one) for name, one in inner["fields"].items()}
            needed = tuple(name for name, one in inner["fields"].items() if one["schema"]["type"] != "default")
            self.kinds[kind] = (own, needed, after)
        return ("object", kind)

    def _field(self, name: str, schema: Schema) -> tuple[tuple[str, ...], Check]:
        only(schema, "schema", "validation_alias", "serialization_exclude")
        names = tuple(alias for [alias] in schema["validation_alias"])
        if names != forms.names_of(name):
            raise SystemExit(f"The names of '{name}' are {names}.")
        inner = schema["schema"]
        if inner["type"] == "default":
            only(inner, "schema", "default")
            inner = inner["schema"]
        return names, self.check(inner)


def only(schema: Schema, *known: str) -> None:
    """Say what is unknown of a schema: it may be a check."""
    unknown = schema.keys() - SILENT - set(known)
    if unknown:
        raise SystemExit(f"{schema['type']}: {sorted(unknown)} is not known.")


def function(schema: Schema) -> Any:
    only(schema, "function")
    if schema["type"] != "no-info":
        raise SystemExit(f"{schema['function']} wants to know more than the value.")
    return schema["function"]


def name_of(rule: Any, *, methods: bool = False) -> str:
    """The name of a rule; a method of a model calls the one of its name."""
    name: str = rule.__name__
    own = getattr(rules, name, None)
    if own is None or (not methods and own is not rule) or (methods and name not in rule.__code__.co_names):
        raise SystemExit(f"A rule belongs into rules.py: {rule}")
    return name


def module() -> str:
    table = Table()
    whole = {name: table.check(_schema(kind)) for name, kind in fields.WHOLE.items()}
    return (
        f"{OPENING}CHECKS: dict[str, tuple[dict[str, tuple[tuple[str, ...], tuple[Any, ...]]], "
        f"frozenset[str], tuple[str, ...]]] = {{\n"
        + "".join(_kind(kind, *table.kinds[kind]) for kind in sorted(table.kinds))
        + f"}}\n\nWORK: tuple[Any, ...] = {_shown(table.work, 25)}\n"
        + f"\nWHOLE: dict[str, tuple[Any, ...]] = {_shown(whole, 35)}\n"
    )


def _kind(kind: str, own: dict[str, Any], needed: tuple[str, ...], after: tuple[str, ...]) -> str:
    lines = "".join(f'        "{name}": {_shown(one, 12 + len(name))},\n' for name, one in own.items())
    return f'    "{kind}": ({{\n{lines}    }}, frozenset({_shown(needed)}), {_shown(after)}),\n'


def _shown(value: object, indent: int = 0) -> str:
    text = pprint.pformat(value, width=118 - indent, sort_dicts=False)
    return text.replace("\n", "\n" + " " * indent).replace("'", '"')


def _schema(kind: Any) -> Schema:
    found: Any = TypeAdapter(kind).core_schema
    return dict(found)


def main() -> int:
    text = module()
    if "--check" in sys.argv:
        return 0 if MODULE.read_text("utf-8") == text else 1
    MODULE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
