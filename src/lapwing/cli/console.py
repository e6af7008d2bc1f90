"""What all commands share: options, opening a ledger, writing files, and how output looks.

Output is rich on a terminal, and plain text of fixed width elsewhere.
"""

from __future__ import annotations

import csv
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Protocol, TypeVar, get_type_hints

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer import Argument, Option, Typer

from lapwing.cli.named_ledger import VARIABLES, NamedLedger, named_ledger
from lapwing.errors import BadParameter, Unavailable
from lapwing.storage.private_file import PUBLIC, new_private_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lapwing.ledger import Ledger

PLAIN_WIDTH = 100
NO_KEY = (
    "Warning: no --key was given. Anybody could have made this with a key of their own: compare the public "
    "key above with the one that you know from elsewhere."
)
Cell = str | Text  # of a table
_FORMULAS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the last four are full-width forms
Where = Annotated[
    str,
    Argument(
        metavar="LEDGER|POLICY",
        help="A ledger (a path, or postgresql://…#name), or a policy, survey, pipeline or release file: "
        "then its ledger.",
    ),
]
KnownKey = Annotated[
    str | None, Option("--key", help="The ledger's public key (64 hexadecimal digits), from elsewhere.")
]
PolicyFile = Annotated[Path, Argument(metavar="POLICY", help="The policy file, such as visits.toml.")]
Source = Annotated[
    str,
    Argument(
        metavar="POLICY|URL",
        help="The policy file, such as visits.toml; or a data set of a server, https://HOST/NAME.",
    ),
]
Analyst = Annotated[
    str | None, Option("--as", envvar="LAPWING_ANALYST", help="Who asks; else your user name.")
]
Threads = Annotated[int | None, Option(help="How many cores an embedded engine may use.")]
Confidence = Annotated[str, Option(help="How sure each interval is.")]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
PlotPath = Annotated[Path | None, Option(help="Draw it into this .svg, .png or .pdf file.")]
ExampleFolder = Annotated[Path, Argument(help="Where to write; this folder unless you say.")]


class Result(Protocol):
    """The result of a command, which can be written as JSON."""

    def to_json(self) -> Any:
        """Return plain values."""


R = TypeVar("R", bound=Result)


class Page(Console):
    """A console with the parts that Lapwing's output is made of."""

    def title(self, text: str) -> None:
        """Print a bold line."""
        self.print(Text(text, style="bold"))

    def heading(self, text: str) -> None:
        """Print a bold line, after an empty one."""
        self.print()
        self.title(text)

    def warning(self, text: str) -> None:
        """Print a bold yellow paragraph."""
        self.print(Text(text, style="bold yellow"))

    def indented(self, *paragraphs: str) -> None:
        """Print paragraphs under a heading."""
        for text in paragraphs:
            self.print(Padding(Text(text), (0, 0, 0, 2)))

    def points(self, *lines: str) -> None:
        """Print a list of sentences."""
        for line in lines:
            grid = Table.grid(padding=(0, 1))
            grid.add_row(Text("  -"), Text(line))
            self.print(grid)

    def pairs(self, *rows: tuple[str, str]) -> None:
        """Print names and their values in two columns."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in rows:
            grid.add_row(Text(name), Text(value))
        self.print(Padding(grid, (0, 0, 0, 2)))

    def table(self, *columns: str, right: Iterable[int] = (), rows: Iterable[Iterable[Cell]]) -> None:
        """Print a table with these rows; the columns in `right` hold numbers."""
        self.print(table(*columns, right=right, rows=rows))


class Commands(Typer):
    """Commands whose options may come in groups.

    A group is a dataclass of options that several commands share. A parameter of such a type becomes one
    option for each field, with the default of the field, or with that of the parameter's own default.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(no_args_is_help=True, **settings)

    def command(self, *names: Any, **settings: Any) -> Callable[[Callable[..., Any]], Any]:
        """Return a decorator that adds a function as a command, and leaves the function as it is."""
        add = super().command(*names, **settings)

        def added(function: Callable[..., Any]) -> Callable[..., Any]:
            add(_without_groups(function))
            return function

        return added


def _without_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with single options in place of groups."""
    own = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation
        for parameter in own.parameters.values()
        if is_dataclass(parameter.annotation)
    }
    options = []
    for parameter in own.parameters.values():
        option = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        if parameter.name not in groups:
            options.append(option)
            continue
        given = groups[parameter.name]() if parameter.default is parameter.empty else parameter.default
        for name, hint in get_type_hints(parameter.annotation, include_extras=True).items():
            options.append(option.replace(name=name, annotation=hint, default=getattr(given, name)))

    @wraps(command)
    def run(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    vars(run)["__signature__"] = own.replace(parameters=options)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in options}
    return run


@dataclass(frozen=True, slots=True)
class OutputForm:
    """The options for output that programs read: none, or one of them."""

    as_json: AsJson = False
    as_csv: Annotated[bool, Option("--csv", help="Print CSV.")] = False

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise BadParameter("csv", "or --json: ask for one of them")

    @property
    def is_for_programs(self) -> bool:
        """True if a program reads the output, and not a person."""
        return self.as_json or self.as_csv


@dataclass(frozen=True, slots=True)
class LedgerFiles:
    """The options for the files of a ledger, beside its own place."""

    keys: Annotated[
        Path | None,
        Option("--keys", envvar=VARIABLES["keys"], help="The ledger's key file; else LEDGER.keys."),
    ] = None
    anchor: Annotated[
        str | None,
        Option(
            "--anchor",
            envvar=VARIABLES["anchor"],
            help="Where the newest state is kept besides; else LEDGER.anchor.",
        ),
    ] = None

    def of(self, where: str) -> NamedLedger:
        """Return the ledger at a place, or that of a policy or another file."""
        with os_errors_told():
            return named_ledger(where, self.keys, self.anchor)


@contextmanager
def page() -> Iterator[Page]:
    """Yield a page: as wide as the terminal, elsewhere of fixed width, so that files look the same."""
    out = Page(highlight=False, markup=False, emoji=False)
    if out.is_terminal:
        yield out
        return
    lines = StringIO()
    yield Page(file=lines, highlight=False, markup=False, emoji=False, width=PLAIN_WIDTH, no_color=True)
    for line in lines.getvalue().splitlines():
        print(line.rstrip())  # tables pad their lines with spaces


def table(*columns: str, right: Iterable[int] = (), rows: Iterable[Iterable[Cell]] = ()) -> Table:
    """Return a table with these rows; the columns in `right` hold numbers."""
    made = Table(box=SIMPLE_HEAD, pad_edge=True, header_style="bold")
    for k, name in enumerate(columns):
        # Long cells are folded rather than cut: nothing that was computed is ever hidden.
        made.add_column(name, justify="right" if k in set(right) else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


@contextmanager
def working(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar, if stderr is a terminal. Yield a function to call with (done, total)."""
    if not sys.stderr.isatty():
        yield lambda _, __: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    # On stderr, since the output may be JSON; and removed when it is done.
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def printable(text: str) -> str:
    """Return another person's text on one line, without control characters that steer a terminal."""
    letters = (
        " " if letter in "\n\t" else letter if letter.isprintable() else f"\\u{ord(letter):04x}"
        for letter in text
    )
    return "".join(letters)


def tell(text: str) -> None:
    """Print a line on stderr. Do nothing if stderr is gone: a run does not end because its terminal did."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:  # it was closed before we began
            print(f"lapwing: {text}", file=sys.stderr, flush=True)


def whole_number(text: str, option: str, *, example: int) -> int:
    """Return the whole number that an option has. Raise BadParameter for another text."""
    try:
        return int(text)
    except ValueError:
        raise BadParameter(option, f"must be a whole number, such as {example}") from None


def print_written(names: Iterable[str], *, is_new: bool) -> None:
    """Print which files an example has, and whether they were written now. The next steps follow."""
    files = ", ".join(names)
    print(f"Wrote {files}. Next:" if is_new else f"There already, and left as it was: {files}. Next:")


def print_findings(head: str, findings: Iterable[str], advice: str = "") -> None:
    """Print on stderr what is wrong with a file, one line each."""
    print(f"lapwing: {head}", file=sys.stderr)
    for finding in findings:
        print(f"  - {printable(' '.join(finding.split()))}", file=sys.stderr)
    if advice:
        print(f"  {advice}", file=sys.stderr)


def print_result(result: R, show: Callable[[R], None], *, as_json: bool) -> None:
    """Print the result of a command: as JSON, or as `show` shows it."""
    if as_json:
        print_json(result.to_json())
    else:
        show(result)


def print_json(value: Any) -> None:
    """Print one JSON value. Infinity and NaN are errors, since JSON has no words for them."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


class CsvWriter:
    """Writes rows as they come, after one line of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._csv = csv.writer(sys.stdout, lineterminator="\n")
        self.write(list(names))

    def write(self, values: Sequence[Any]) -> None:
        """Write one row."""
        self._csv.writerow([csv_cell(value) for value in values])


def csv_cell(value: Any) -> str | int | float:
    """Return a cell. A missing value and an infinite end of an interval are empty.

    Numbers have no separators of thousands. A text that a spreadsheet would take for a formula begins with
    an apostrophe.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple):
        value = "; ".join(map(str, value))
    text = printable(value.isoformat() if isinstance(value, date) else str(value))
    # Some spreadsheets leave out spaces before they look for a formula; a tab has become a space.
    return f"'{text}" if text.lstrip().startswith(_FORMULAS) else text


@contextmanager
def os_errors_told() -> Iterator[None]:
    """Turn errors of the operating system into one line. A missing file is bad input."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of our output has had enough
    except OSError as error:
        what = f"{error.filename}: " if error.filename and len(str(error.filename)) < 300 else ""
        if isinstance(error, FileNotFoundError):
            raise BadParameter("file", f"{what}{error.strerror}") from None
        raise Unavailable(f"{what}{error.strerror}") from None


@contextmanager
def opened_ledger(place: NamedLedger) -> Iterator[Ledger]:
    """Open a ledger, checked against its entries and anchors."""
    from lapwing.ledger import Ledger

    with os_errors_told():
        place.require()
        with working("checking the ledger"):
            ledger = Ledger.open(place.where, keys=place.keys, anchor=place.anchor, registry=place.registry)
        with ledger:
            yield ledger


def require_file(path: Path, option: str) -> None:
    """Raise BadParameter if a file is missing. A pipe is a file, too; a folder is not."""
    if not path.exists() or path.is_dir():
        raise BadParameter(option, f"there is no file {path}")


@contextmanager
def new_file(path: Path, *, option: str, mode: int = PUBLIC) -> Iterator[IO[bytes]]:
    """Create a file and yield it for writing. Raise BadParameter if it exists or cannot be written."""
    with ExitStack() as opened:
        try:
            file = opened.enter_context(new_private_file(path, mode=mode))
        except FileExistsError:
            raise BadParameter(
                option, f"{path} exists: nothing is written over. Give another name"
            ) from None
        except OSError as error:
            raise BadParameter(option, f"{path} cannot be written ({error.strerror})") from None
        yield file


def write_new(path: Path, text: str, *, option: str) -> None:
    """Write a text into a new file. Raise BadParameter if it exists or cannot be written."""
    with new_file(path, option=option) as file:
        file.write(text.encode())


def check_plot(path: Path | None) -> None:
    """Raise BadParameter, before anything is charged, if a picture has an unknown suffix or no folder."""
    if path is not None:
        from lapwing.plots.style import checked_path

        checked_path(path)
        if not path.parent.is_dir():
            raise BadParameter("plot", f"{path} cannot be written (there is no folder {path.parent})")


def write_plot(path: Path, figure: Figure, *, quiet: bool = False) -> None:
    """Save a picture, and print where it is unless `quiet`."""
    # matplotlib takes a second to load: only commands that draw wait for it.
    from lapwing.plots.style import save

    try:
        save(figure, path)
    except OSError as error:
        raise BadParameter("plot", f"{path} cannot be written ({error.strerror})") from None
    if not quiet:
        print(f"\nThe picture is in {path}")
