"""Errors that a server replies with, as the classes of the library.

A reply names an error by its code. The class of that code is raised here, with the fields that the reply
has, so that `except lapwing.OverBudget` holds for a server, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

from lapwing.errors import LapwingError

_ABOVE = {  # classes that are not below this package: they are imported when a reply has their code
    "refused": "lapwing.sql.question.refusal",
    "engine-failed": "lapwing.engines.engine",
    "missing-right": "lapwing.engines.engine",
}
_LONGEST = 4000  # characters of one text


class RequestRefused(LapwingError):
    """A server refused a request for a reason that only servers have, such as a token that has ended.

    `status` is the HTTP status, and `code` the server's word, such as "not-signed-in", "not-allowed" or
    "not-found". Nothing was charged.

    Example:
        >>> from lapwing.client import RequestRefused
        >>> try:
        ...     visits.answer("visits.99999")
        ... except RequestRefused as error:
        ...     print(error.code, error.status)
        not-found 404
    """

    code: ClassVar[str] = "request-refused"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def error_of(status: int, content: Any) -> LapwingError:
    """Return the error of a reply.

    Args:
        status: The HTTP status.
        content: The JSON value of the reply; anything, if the reply is not one of a Lapwing server.
    """
    said = content.get("error") if isinstance(content, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(said.get("code"), str):
        return RequestRefused(f"the server replied with status {status}, and not as Lapwing does", status)
    code, message = said["code"], str(said.get("message", ""))[:_LONGEST]
    fields = {
        name: _frozen(value)
        for name, value in said.items()
        if isinstance(name, str) and name.isidentifier() and not name.startswith("_")
    }
    fields.pop("message", None)
    kind = class_of(code)
    if kind is None:
        error: LapwingError = RequestRefused(message, status)
        error.__dict__.update(fields)  # with the server's own code
        return error
    fields.pop("code", None)
    error = kind.__new__(kind, message)  # its `__init__` wants the parts that the message was made of
    error.args = (message,)
    error.__dict__.update(fields)
    return error if _prints(error) else RequestRefused(message, status)


def _prints(error: LapwingError) -> bool:
    """Return whether an error has the fields that its text is made of."""
    try:
        str(error)
    except AttributeError:
        return False
    return True


def class_of(code: str) -> type[LapwingError] | None:
    """Return the class of a code, or None for a code that the library does not have."""
    if code in _ABOVE:
        import_module(_ABOVE[code])
    waiting: deque[type[LapwingError]] = deque([LapwingError])
    while waiting:  # the class nearest to the base: two may share a code, and mean the same
        kind = waiting.popleft()
        if kind.code == code and kind is not LapwingError:
            return kind
        waiting.extend(kind.__subclasses__())
    return None


def _frozen(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_LONGEST]
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value
