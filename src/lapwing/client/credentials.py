"""The token of a program, and where it comes from: an argument, the environment, or a private file.

Claim    a token is in no text that this library writes: no error, no `repr`, no log.
Because  it lives in one object that prints without it and gives it to the header of a request alone; the
         text of a token that is not valid is never quoted.
Test     tests/client/test_credentials.py
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from lapwing.errors import BadParameter

VARIABLE, FILE_VARIABLE = "LAPWING_TOKEN", "LAPWING_TOKEN_FILE"
_FORM = re.compile(r"[!-~]{16,512}")
_LARGEST_FILE = 4096
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_HOW = (
    f"Give token=…, set {VARIABLE}, or name a private file in {FILE_VARIABLE} or with token_file=…. The "
    "console's page Tokens makes one"
)


class ClientToken:
    """A token. It prints without its text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def header(self) -> str:
        """The value of the header Authorization."""
        return f"Bearer {self._text}"

    def __repr__(self) -> str:
        return "<a token>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a token is not pickled: connect again where it is needed")


def find_token(token: str | None = None, token_file: str | Path | None = None) -> ClientToken:
    """Return the token to use.

    Args:
        token: The token itself.
        token_file: A file with the token, which only its owner can read.

    Raises:
        BadParameter: If there is none, or it cannot be one, or others can read the file.
    """
    if token is not None and token_file is not None:
        raise BadParameter("token", "is given twice: give token or token_file")
    if token is not None:
        return _checked(token, "token")
    if token_file is not None:
        return _of_file(Path(token_file))
    if text := os.environ.get(VARIABLE):
        return _checked(text, VARIABLE)
    if path := os.environ.get(FILE_VARIABLE):
        return _of_file(Path(path))
    raise BadParameter("token", f"is missing. {_HOW}")


def _checked(text: object, name: str) -> ClientToken:
    if not isinstance(text, str) or not _FORM.fullmatch(text.strip()):
        raise BadParameter(name, "is not the text of a token: 16 to 512 letters, digits and signs")
    return ClientToken(text.strip())


def _of_file(path: Path) -> ClientToken:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
        try:
            about = os.fstat(file)  # of the opened file: its path may lead elsewhere by now
            if not stat.S_ISREG(about.st_mode):
                raise BadParameter("token_file", f"{path} is not a plain file")
            if about.st_mode & _OTHERS or about.st_uid not in (os.geteuid(), 0):
                raise BadParameter("token_file", f"others can use the token in {path}: chmod 600 {path}")
            content = os.read(file, _LARGEST_FILE)
        finally:
            os.close(file)
    except OSError as error:
        raise BadParameter("token_file", f"{path} cannot be read: {error.strerror}") from None
    return _checked(content.decode("ascii", "replace"), "token_file")
