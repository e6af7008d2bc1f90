"""Tables of TOML files as pydantic models. All mistakes are noted together, in plain words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, PlainValidator, PrivateAttr, ValidationError
from pydantic.fields import FieldInfo

from lapwing.config.toml_text import FileMistakes, Key
from lapwing.config.values import (
    POSTGRES_SCHEMES,
    checked_choice,
    checked_label,
    did_you_mean,
    kind_of,
    why_bad_name,
)
from lapwing.core.exact import exact
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.errors import BadParameter

TEXT_AT_MOST = 4096
WEB_SCHEMES = ("https://", "http://")
_WANTED = {  # by the type of pydantic's error
    "bool_type": "true or false, without quotes",
    "date_type": "a date without quotes and time, such as 2027-01-31",
    "dict_type": "a table of tables",
    "int_type": "a whole number",
    "list_type": "a list of tables",
    "model_type": "a table",
    "string_type": "a text in quotes",
}

T = TypeVar("T", bound="FileTable")
V = TypeVar("V")


class FileTable(BaseModel):
    """A table of a TOML file. A field without a default must be there; its description shows how.

    A field is a table, a dict, or may be None. `read_table` puts None, or an empty table,
    for a value that is wrong, and for a missing one that must be there. So the checks between values find
    their mistakes in the same run.
    """

    model_config = {"extra": "forbid", "strict": True, "frozen": True, "defer_build": True}
    _mistakes: FileMistakes = PrivateAttr()
    _key: Key = PrivateAttr()
    _is_stand_in: bool = PrivateAttr(False)

    @classmethod
    def by_key(cls) -> dict[str, FieldInfo]:
        """Return the fields by their keys in the file."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}

    def has(self, name: str) -> bool:
        """Return whether the file gives a value to a field, right or wrong."""
        return name in self.model_fields_set

    def note(self, what: str, *names: str) -> None:
        """Note a mistake of this table, or at a key in it, unless the whole table is missing or wrong."""
        if not self._is_stand_in:
            self._mistakes.add((*self._key, *names), what)

    def wrong(self, name: str, what: str) -> None:
        """Note a mistake at a key of this table."""
        self.note(what, name)

    def missing(self, name: str, write: str) -> None:
        """Note that a key is missing. `write` shows what to write."""
        self.wrong(name, f"is missing. Write {write}")

    def require(self, **write: str) -> None:
        """Note which of the keys are missing, each with what to write."""
        for name, example in write.items():
            if not self.has(name):
                self.missing(name, example)

    def inner(self, model: type[T], name: str) -> T:
        """Return a table in this one, which may also be something else than a table."""
        return read_table(model, getattr(self, name), self._mistakes, (*self._key, name))

    def attempt(self, make: Callable[[], V], name: str = "") -> V | None:
        """Return `make()`. If it raises BadParameter, note the reason at its name (or `name`)."""
        try:
            return make()
        except BadParameter as error:
            self.wrong(name or error.name, error.why)
            return None


def read_table(model: type[T], values: dict[str, Any], mistakes: FileMistakes, key: Key = ()) -> T:
    """Return the table of a file at a key. Mistakes are noted, and taken out of `values`."""
    try:
        made = model.model_validate(values)
    except ValidationError as error:
        for error_details in error.errors(include_url=False):
            _note(error_details, model, values, mistakes, key)
        made = model.model_validate(values)
    _bind(made, mistakes, key)
    return made


def _note(details: Any, model: type[FileTable], values: Any, mistakes: FileMistakes, key: Key) -> None:
    """Note one of pydantic's errors, and replace the wrong value by None or by an empty table."""
    place = details["loc"]
    table, field, is_item = _declared(model, place)
    mistakes.add((*key, *place), _in_words(details, table, field))
    for part in place[:-1]:
        values = values[part]
    if field is None or is_item:
        del values[place[-1]]
    else:
        values[place[-1]] = _stand_in(field.annotation)


def _declared(
    model: type[FileTable], place: Sequence[Any]
) -> tuple[type[FileTable], FieldInfo | None, bool]:
    """Return the table that holds a place, its field there (None if unknown), and if the place is an item.

    An item of a dict has the field of the dict.
    """
    field, rest, is_item = model.by_key().get(place[0]), place[1:], False
    annotation = None if field is None else field.annotation
    while rest and get_origin(annotation) is dict:
        annotation, rest, is_item = get_args(annotation)[1], rest[1:], True
    if field is None or not rest:
        return model, field, is_item
    inner = _table_in(annotation)
    assert inner is not None
    return _declared(inner, rest)


def _table_in(annotation: Any) -> type[FileTable] | None:
    if isinstance(annotation, type) and issubclass(annotation, FileTable):
        return annotation
    tables = (_table_in(argument) for argument in get_args(annotation))
    return next((table for table in tables if table is not None), None)


def _stand_in(annotation: Any) -> Any:
    if get_origin(annotation) is dict:
        return {}
    if not isinstance(annotation, type) or not issubclass(annotation, FileTable):
        return None
    empty = {name: _stand_in(field.annotation) for name, field in annotation.model_fields.items()}
    made = annotation.model_construct(_fields_set=set(), **empty)
    made._is_stand_in = True
    return made


def _in_words(details: Any, table: type[FileTable], field: FieldInfo | None) -> str:
    kind, value = details["type"], details["input"]
    if kind == "value_error":
        error = details["ctx"]["error"]
        return str(getattr(error, "why", error))
    if field is None:
        return f"unknown key. {did_you_mean(details['loc'][-1], list(table.by_key()))}"
    if kind == "missing":
        return f"is missing. Write {field.description}"
    if kind in ("greater_than_equal", "less_than_equal"):
        least = next(limit.ge for limit in field.metadata if hasattr(limit, "ge"))
        most = next(limit.le for limit in field.metadata if hasattr(limit, "le"))
        return f"must lie between {least:,} and {most:,}"
    more = {"list_type": f". Write {field.description}", "int_type": _unquote(value)}.get(kind, "")
    return f"must be {_WANTED[kind]}, not {kind_of(value)}{more}"


def _bind(table: FileTable, mistakes: FileMistakes, key: Key) -> None:
    """Tell a table and all tables in it their place in the file."""
    table._mistakes, table._key = mistakes, key
    for name, field in type(table).model_fields.items():
        value, inside = getattr(table, name), (*key, field.alias or name)
        if isinstance(value, FileTable):
            _bind(value, mistakes, inside)
        elif isinstance(value, dict) and _table_in(field.annotation):
            for inner, item in value.items():
                _bind(item, mistakes, (*inside, inner))


# Kinds of values


def needed(write: str, *, ge: int | None = None, le: int | None = None) -> Any:
    """Return a field that must be there. `write` shows what to write."""
    return Field(description=write, ge=ge, le=le)


def fits(test: Callable[[Any], bool], why: str) -> AfterValidator:
    """Return the check that a value passes a test. `why` is the mistake if it does not."""

    def check(value: V) -> V:
        if not test(value):
            raise ValueError(why)
        return value

    return AfterValidator(check)


def one_of(choices: Sequence[str]) -> AfterValidator:
    """Return the check that a text is one of a few words."""
    return AfterValidator(lambda value: checked_choice(value, choices))


def _is_plain(text: str) -> bool:
    return text.isprintable() and text == text.strip() and len(text) <= TEXT_AT_MOST


def _column_name(value: str) -> str:
    if why := why_bad_name(value):
        raise ValueError(f"must name a column. A name {why}")
    return value


def exact_number(value: object) -> Fraction:
    """Return a number of a file exactly as it is written: 0.1 is one tenth."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise BadParameter("number", f"must be a number, not {kind_of(value)}{_unquote(value)}")
    return exact(value)


def _unquote(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[-+0-9._eE]{1,40}", value):
        return ". Remove the quotes"
    return ""


Text = Annotated[
    str,
    fits(bool, "must not be empty"),
    fits(_is_plain, "must be printable, on one line, without spaces around it"),
]
Label = Annotated[Text, AfterValidator(lambda text: checked_label(text, "label"))]  # for the ledger
ColumnName = Annotated[Text, AfterValidator(_column_name)]
Number = Annotated[Fraction, PlainValidator(exact_number)]
Epsilon = Annotated[Number, AfterValidator(checked_epsilon)]
Delta = Annotated[Number, AfterValidator(checked_delta)]
Flag = bool | None


# Locations


class LedgerTable(FileTable):
    """The locations of a ledger, its keys, anchor and registry, as the table [ledger] gives them."""

    url: Text | None = None
    keys: Text | None = None
    anchor: Text | None = None
    registry: Text | None = None

    def locations(self, path: Path, *, default: str, example: str) -> dict[str, Any]:
        """Return the locations by their names in a policy; "" for the usual location."""
        locations = {
            "ledger": read_location(self, "url", path, example=example) or default,
            "ledger_keys": read_location(self, "keys", path, example=example),
            "ledger_anchor": read_location(self, "anchor", path, example=example, web=True),
            "ledger_registry": self._registry(path),
        }
        if locations["ledger_keys"].startswith(POSTGRES_SCHEMES):
            self.wrong("keys", "must be the path of a file")
        return locations

    def _registry(self, path: Path) -> str:
        if self.registry is None or self.registry.startswith(POSTGRES_SCHEMES):
            return self.registry or ""
        if "://" in self.registry:
            self.wrong("registry", "must be the path of a folder, or begin with postgresql://")
        return os.path.normpath(path.parent / self.registry)


def read_location(table: FileTable, name: str, path: Path, *, example: str, web: bool = False) -> str:
    """Return a path relative to the folder of the file `path`, or a URL; "" if missing or wrong."""
    text: str | None = getattr(table, name)
    if text is None:
        return ""
    if text.startswith(POSTGRES_SCHEMES) or (web and text.startswith(WEB_SCHEMES)):
        return text
    if "://" in text:
        table.wrong(name, "must be a path, or begin with postgresql://")
        return ""
    location = os.path.normpath(path.parent / text)
    if location == str(path) or os.path.isdir(location):
        table.wrong(name, f'must be a file of its own, such as "{example}"')
    return location
