"""Parsing: from the text of a query to one syntax tree of limited size. Nothing else reads the text.

Questions of other forms are written as text first, and take the same way: trees of sqlglot, expressions of
ibis, and questions that were built in Python.

All names in the tree are printable, because refusals and receipts show them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from lapwing.errors import BadParameter
from lapwing.sql.question.built_question import BuiltQuestion
from lapwing.sql.question.merged_queries import merged
from lapwing.sql.question.refusal import Refused, SqlPosition, allow_only, position_of

LONGEST = 100_000
MOST_WORDS = 20_000
DEEPEST = 100  # levels of the tree; each takes a few levels of Python's stack in binding and rendering
_MOST_BRACKETS = 40  # open at once; each takes about 16 levels of the parser's stack
_MOST_SQUARE = 50  # in all; the parser's time grows with the square of their number
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_CHAINS = (exp.And, exp.Or)  # bound without recursion
_STRENGTHS: tuple[tuple[type[exp.Expr], ...], ...] = (  # the loosest operations first
    (exp.Or,),
    (exp.And,),
    (exp.Not,),
    (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Like, exp.ILike, exp.In, exp.Between),
    (exp.DPipe,),
    (exp.Add, exp.Sub),
    (exp.Mul, exp.Div, exp.IntDiv, exp.Mod),
    (exp.Neg,),
)
_STRENGTH = {kind: strength for strength, kinds in enumerate(_STRENGTHS) for kind in kinds}
_OPERANDS = ("this", "expression", "low", "high")

# Characters that move the cursor or reverse the direction of writing: queries are shown on screens.
_UNSHOWN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_TEXTS = frozenset(kind for kind in TokenType if kind.name.endswith("STRING"))

CLAUSE = "DIFFERENTIAL_PRIVACY"  # `lapwing.sql.question.priced_text` takes it out of the text

logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # its warnings repeat the query


def parse(question: Any) -> exp.Query:
    """Return the syntax tree of the one query that a question holds, in any of the forms of `sql_text`.

    Raises Refused if there is none, or if it is too large.
    """
    return parse_with_earlier(question)[0]


def parse_with_earlier(question: Any) -> tuple[exp.Query, ...]:
    """Return the tree of `parse`, and the other one that earlier versions bound for this question.

    They did not merge what ibis writes. Their answers are stored under the meaning of the tree as written.
    """
    tree = _as_written(question)
    less = merged(tree) if _is_ibis(question) else tree
    return (less,) if less == tree else (less, tree)


def _as_written(question: Any) -> exp.Query:
    sql = sql_text(question)
    if not sql.strip():
        raise Refused("there is no query", 'Write SQL, such as "SELECT COUNT(*) FROM visits"')
    trees = _trees(sql)
    if len(trees) != 1:
        raise Refused("there are several statements", "Ask one SELECT at a time")
    [tree] = trees
    while isinstance(tree, exp.Subquery):
        allow_only(tree, "this")
        tree = tree.this
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise Refused("only SELECT can be asked", "Write one SELECT")
    _require_flat(tree)
    return tree


def words_of(sql: str) -> list[Token]:
    """Return the words of a text of limited size. Raises Refused for what cannot be read or shown."""
    return _reading(lambda dialect: _words(dialect, sql))


def clauses_in(words: Sequence[Token]) -> list[int]:
    """Return the places of each SELECT that `WITH DIFFERENTIAL_PRIVACY` follows."""
    kinds = [word.token_type for word in words]
    return [
        place
        for place in range(len(words) - 2)
        if kinds[place] is TokenType.SELECT
        and kinds[place + 1] is TokenType.WITH
        and kinds[place + 2] is TokenType.VAR
        and words[place + 2].text.upper() == CLAUSE
    ]


def place_of(word: Token) -> SqlPosition:
    """Return the line and column at which a word begins."""
    return word.line, max(word.col - (word.end - word.start), 1)


def _is_ibis(question: Any) -> bool:
    return type(question).__module__.partition(".")[0] == "ibis"


T = TypeVar("T")


def _reading(read: Callable[[Dialect], T]) -> T:
    """Let the parser's errors be refusals."""
    try:
        return read(Dialect.get_or_raise("duckdb"))
    except Refused:
        raise
    except SqlglotError as error:
        raise _misread(error) from None
    except RecursionError:
        raise _too_deep() from None
    except Exception:  # hostile text can cause any error in a parser
        raise Refused("this cannot be read as SQL", "Write one SELECT") from None


def _trees(sql: str) -> list[Any]:
    def read(dialect: Dialect) -> list[Any]:
        words = _words(dialect, sql)
        if places := clauses_in(words):
            raise Refused(
                f"WITH {CLAUSE} can be priced by `plan` and `ask` only",
                "Leave it out, and give the options beside the SQL",
                place_of(words[places[0] + 1]),
            )
        trees = dialect.parser().parse(words, sql)
        return [tree for tree in trees if not isinstance(tree, exp.Semicolon | None)]

    return _reading(read)


def _words(dialect: Dialect, sql: str) -> list[Token]:
    if len(sql) > LONGEST:
        raise Refused(f"the query is longer than {LONGEST:,} characters", "Ask a shorter one")
    if _UNSHOWN.search(sql):
        raise Refused("the query has a character that cannot be shown", "Leave it out")
    words = dialect.tokenize(sql)
    _require_few(words)
    return words


def _require_few(words: Sequence[Token]) -> None:
    """Refuse a text with too many words or brackets: the parser's time grows with them."""
    if len(words) > MOST_WORDS:
        raise Refused(f"the query has more than {MOST_WORDS:,} words", "Ask a shorter one")
    depth = square = 0
    for word in words:
        depth += (word.token_type in _OPENING) - (word.token_type in _CLOSING)
        square += word.token_type is TokenType.L_BRACKET
        if word.token_type not in _TEXTS and not word.text.isprintable():
            raise _unprintable((word.line, max(word.col - len(word.text), 1)))
        if depth > _MOST_BRACKETS or square > _MOST_SQUARE:
            raise _too_deep()


def _require_flat(tree: exp.Expr) -> None:
    waiting: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > DEEPEST:
            raise _too_deep()
        if isinstance(node, exp.Identifier) and not str(node.this).isprintable():  # a text as an alias
            raise _unprintable(position_of(node))
        if isinstance(node.this, str) and _UNSHOWN.search(node.this):  # written as an escape
            raise Refused("a text has a character that cannot be shown", "Leave it out", position_of(node))
        for child in node.iter_expressions():
            chained = isinstance(child, _CHAINS) and type(child) is type(node)
            waiting.append((child, depth + (not chained)))


def _unprintable(place: SqlPosition | None) -> Refused:
    """Return a refusal that does not contain the name."""
    return Refused("a name has an unprintable character", "Write the name without it", place)


def _too_deep() -> Refused:
    return Refused("the query is nested too deeply", "Ask a shorter one, or use CTEs")


def _misread(error: SqlglotError) -> Refused:
    details = getattr(error, "errors", None) or [{}]
    line, column = details[0].get("line"), details[0].get("col")
    place = (int(line), int(column)) if line and column else None
    instead = "Look for a missing comma, quote or bracket near it"
    word = str(details[0].get("highlight", ""))
    if word.isidentifier() and word.upper() in Dialect.get_or_raise("duckdb").tokenizer_class.KEYWORDS:
        instead += f'. If {word} is the name of a column, write it in quotes: "{word}"'
    return Refused("this cannot be read as SQL", instead, place)


def normal_form(tree: exp.Query) -> str:
    """Return the same text for queries that differ only in spaces, comments and the case of keywords.

    The tree is used up: writing it as text changes it.
    """
    return tree.sql("duckdb", comments=False, copy=False)


def sql_text(question: Any) -> str:
    """Return the SQL of a question: its text, a tree of sqlglot, an expression of ibis or a built question.

    A construct of a tree or an expression that the SQL of DuckDB has not is refused, never left out.
    """
    if isinstance(question, str):
        return question
    if isinstance(question, BuiltQuestion):
        return question.sql
    if isinstance(question, exp.Expr):
        return _sql_of_tree(question)
    if _is_ibis(question):
        return _sql_of_ibis(question)
    raise BadParameter(
        "question",
        "must be SQL, an ibis expression, a sqlglot tree, or a question that is built in Python, such as "
        'table("visits").agg(n=count()) with lapwing.questions',
    )


def _sql_of_tree(tree: exp.Expr) -> str:
    try:
        return _bracketed(tree).sql("duckdb", unsupported_level=ErrorLevel.RAISE)
    except RecursionError:
        raise _too_deep() from None
    except Exception:  # trees that nobody parsed can hold anything
        raise Refused("this tree cannot be written as SQL", "Write one SELECT") from None


def _bracketed(tree: exp.Expr) -> exp.Expr:
    """Return a tree with brackets where its text would be read as another tree.

    sqlglot writes none of its own. A tree that was parsed has all that it needs, and stays as it is.
    """
    tree = tree.copy()
    for node in reversed(list(tree.find_all(*_STRENGTH))):  # the innermost first
        own = _STRENGTH.get(type(node))
        around = None if node.parent is None else _STRENGTH.get(type(node.parent))
        if own is None or around is None or node.arg_key not in _OPERANDS:
            continue
        is_first = node.arg_key == "this" or isinstance(node, _CHAINS)
        if own < around or (own == around and not is_first):
            node.replace(exp.Paren(this=node.copy()))
    return tree


def _sql_of_ibis(expression: Any) -> str:
    import ibis  # noqa: PLC0415 (optional)

    try:
        return str(ibis.to_sql(expression, dialect="duckdb"))
    except RecursionError:
        raise _too_deep() from None
    except Exception:  # of many kinds: what DuckDB has not, and what is no table or value
        why = "this ibis expression cannot be written as SQL of DuckDB"
        instead = 'Call ibis.to_sql(expression, dialect="duckdb") to see why, or write SQL'
        raise Refused(why, instead) from None
