"""Write the test vectors, from the project's own code: `make vectors`.

    python -m vectors.write [FOLDER]

The random bytes are scripted: first words that are chosen to reach a rare branch, then bytes of SHAKE-256
of the vector's name. So the files are the same each time. The entries are those of a ledger that an
earlier version stored. docs/reference/vectors.md describes the files.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from lapwing import noise
from lapwing.core import losses
from lapwing.core import noise as door
from lapwing.core.budget import Charge, Terms
from lapwing.core.exact import Real, exp_of, precision
from lapwing.core.exact_sampling import rational
from lapwing.core.loss_records import describe
from lapwing.core.random_stream import RandomStream
from lapwing.ledger.entry import commitment, digest_of, request_digest
from lapwing.ledger.seals import MerkleTree, inclusion_proof
from lapwing.mechanisms import RandomizedResponse

HERE = Path(__file__).parent
STORED = HERE.parent / "tests" / "stored" / "2f35d4a.tar.gz"
# Python has filters of archives since 3.11.4; this archive is our own.
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
FORMAT = 1
ONES = (1 << 64) - 1
Vector = dict[str, Any]


class Script(RandomStream):
    """Scripted words, then bytes of SHAKE-256 of a name; all that was taken is kept."""

    def __init__(self, name: str, words: Sequence[int]) -> None:
        first = b"".join(word.to_bytes(8, "little") for word in words)
        self._rest = first + hashlib.shake_256(name.encode()).digest(1 << 16)
        self.taken = b""

    def take(self, size: int) -> bytes:
        """Return the next bytes of the script."""
        given, self._rest = self._rest[:size], self._rest[size:]
        if len(given) < size:
            raise SystemExit("the script is too short")
        self.taken += given
        return given


def _leading(real: Real, words: int = 1) -> list[int]:
    """Return the leading words of a real in (0, 1): a uniform number with these is not decided."""
    bits = 64 * words
    ball = real(bits + 64)
    with precision(bits + 128):
        whole = int((ball * 2**bits).floor().unique_fmpz())
    return [whole >> (bits - 64 * place) & ONES for place in range(1, words + 1)]


def _draw(
    name: str, run: Callable[[], Any], sampler: str, size: int, words: Sequence[int] = (), **parameters: Any
) -> Vector:
    """Return a vector of what `run` draws from the scripted bytes."""
    script = Script(name, words)
    with patch.object(door, "SYSTEM", script):
        draws = [int(drawn) for drawn in run()]
    vector = {"name": name, "sampler": sampler, "parameters": parameters, "size": size}
    return vector | {"bytes": script.taken.hex(), "draws": draws}


def _of(
    function: Callable[..., Any], name: str, size: int, words: Sequence[int] = (), **parameters: Any
) -> Vector:
    """Return a vector of a function of `lapwing.noise` that takes its parameters by name."""
    given = parameters if function is noise.bernoulli_exp else {"size": size, **parameters}
    return _draw(name, lambda: function(**given), function.__name__, size, words, **parameters)


def _reports(name: str, mechanism: RandomizedResponse, answers: list[int], **parameters: Any) -> Vector:
    options = {"options": mechanism.options, "answers": answers, **parameters}
    return _draw(name, lambda: mechanism.sample(answers), "randomized_response", len(answers), **options)


def draws() -> list[Vector]:
    """Return the vectors of draws: random bytes to numbers."""
    third, decay = _leading(rational(Fraction(1, 3)), 3), _leading(exp_of(Fraction(-1, 3)), 2)
    beyond = _leading(exp_of(-Fraction(2**7) / Fraction(5, 2)), 2)
    at_0 = _leading(_first_share(Fraction(1, 2), [0, 1, 3]), 2)
    choose: Vector = {"scores": [0, 1, 3], "rate": "1/2"}
    counts = np.array([5, 1, 2])
    coins, three = RandomizedResponse.two_coins(), RandomizedResponse.for_epsilon(1, options=3)
    return [
        _of(noise.bernoulli, "one third", 4, probability="1/3"),
        _of(
            noise.bernoulli,
            "one third, a tie, then below",
            2,
            [third[0], 0, third[1] - 1],
            probability="1/3",
        ),
        _of(
            noise.bernoulli, "one third, a tie, then above", 1, [third[0], third[1] + 1], probability="1/3"
        ),
        _of(noise.bernoulli, "one third, two ties", 1, [*third[:2], third[2] - 1], probability="1/3"),
        _of(noise.bernoulli, "one half ends: no tie", 2, [1 << 63, (1 << 63) - 1], probability="1/2"),
        _of(noise.bernoulli, "certain and impossible", 2, [ONES, 0], probability="1"),
        _of(noise.bernoulli_exp, "decays", 4, x=[0, 1, 2, 50], rate="1/3"),
        _of(noise.bernoulli_exp, "a decay ties", 1, [decay[0], decay[1] - 1], x=[1], rate="1/3"),
        _of(noise.geometric, "geometric 5/2", 6, scale="5/2"),
        _of(noise.geometric, "geometric 1000", 40, scale="1000"),
        _of(noise.geometric, "beyond the last digit", 1, [ONES] * 7 + [0, beyond[1] - 1], scale="5/2"),
        _of(noise.discrete_laplace, "Laplace 5/2", 6, scale="5/2"),
        _of(noise.discrete_laplace, "Laplace 1/3", 6, scale="1/3"),
        _of(noise.discrete_laplace, "Laplace 1000", 6, scale="1000"),
        _of(noise.discrete_laplace, "Laplace, a digit ties", 1, _tied_digit(Fraction(10), 3), scale="10"),
        _of(noise.discrete_gaussian, "Gaussian 3", 6, sigma="3"),
        _of(noise.discrete_gaussian, "Gaussian 7/2", 6, sigma="7/2"),
        _of(noise.discrete_gaussian, "Gaussian 100, by blocks", 6, sigma="100"),
        _of(noise.exponential_choice, "a choice", 5, **choose),
        _of(noise.exponential_choice, "a choice ties", 1, [at_0[0], at_0[1] + 1], **choose),
        _draw(
            "a choice with counts",
            lambda: noise.exponential_choice([0, 1, 3], "1/2", 4, counts=counts),
            "exponential_choice",
            4,
            **choose,
            counts=counts.tolist(),
        ),
        _of(noise.uniform_int, "seven numbers, one drawn again", 3, [0, ONES, 5], low=-3, high=4),
        _draw("an order", lambda: noise.permutation(6), "permutation", 6),
        _draw("an order, equal keys", lambda: noise.permutation(3), "permutation", 3, [7, 7, 1]),
        _reports("two coins", coins, [0, 1, 1, 0], truth="3/4"),
        _reports("three options", three, [0, 1, 2, 2], epsilon="1"),
        _of(noise.polya_share, "shares of three", 3, scale="5/2", parties=3),
        _of(noise.polya_share, "shares of two, at 1000", 6, scale="1000", parties=2),
    ]


def _first_share(rate: Fraction, scores: list[int]) -> Real:
    """Return the probability of the first of three scores."""

    def share(bits: int) -> Any:
        weights = [exp_of(rate * (score - max(scores)))(bits + 64) for score in scores]
        with precision(bits + 64):
            return weights[0] / sum(weights)

    return share


def _tied_digit(scale: Fraction, place: int) -> list[int]:
    """Return words of which one ties with the probability of a digit, and the word that decides."""

    def digit(bits: int) -> Any:
        with precision(bits + 64):
            weight = exp_of(-Fraction(2**place) / scale)(bits + 64)
            return weight / (1 + weight)

    tied, then = _leading(digit, 2)
    count = int(45 * scale).bit_length()
    words = [ONES] * (count + 2)
    words[place] = tied
    return [*words, then - 1]


def prices() -> list[Vector]:
    """Return the vectors of prices: losses to costs, one after the other in one account."""
    step = losses.SampledGaussian(Fraction(1, 100), losses.GaussianNoise(Fraction(3, 2), Fraction(1), 1))
    tenth, gaussian = losses.Pure(Fraction(1, 10)), losses.GaussianNoise(Fraction(50), Fraction(3), 3)
    kinds: list[losses.Loss] = [
        tenth,
        losses.Pure(Fraction(0)),
        losses.Approximate(Fraction(1, 7), Fraction(1, 10**9)),
        losses.Concentrated(Fraction(1, 3000)),
        losses.BoundedRange(Fraction(1, 10)),
        losses.BoundedRange(Fraction(20)),
        losses.LaplaceNoise(Fraction(10), 1),
        losses.LaplaceNoise(Fraction(70, 3), 4),
        gaussian,
        losses.Repeated(step, 100),
        losses.SequentialComposition((tenth, gaussian)),
        losses.ParallelComposition((tenth, losses.LaplaceNoise(Fraction(11), 2))),
    ]
    small, wide = losses.LaplaceNoise(Fraction(3), 1), losses.GaussianNoise(Fraction(9), Fraction(1), 1)
    uneven = losses.Approximate(Fraction(1, 1000), Fraction(1, 3 * 10**7))  # is rounded; two do not fit δ₀
    larger_first = losses.ParallelComposition((losses.LaplaceNoise(Fraction(11), 2), tenth))
    return [
        _account("every kind of loss", Terms.of(100, "1e-6"), kinds),
        _account("until it is refused", Terms.of(1, "1e-6"), [small] * 5),
        _account("pure: no δ", Terms.of("1/2", 0), [losses.Pure(Fraction(1, 4))] * 2 + [gaussian, tenth]),
        _account("a filter that is left", Terms.of(1, "1e-6"), [wide] * 6),
        _account("δ₀ is used up", Terms.of(1, "1e-6"), [uneven, uneven, larger_first]),
        _account("high orders", Terms.of("1/100", "1e-6"), [losses.Pure(Fraction(1, 2)), small, tenth]),
    ]


def _account(name: str, terms: Terms, kinds: list[losses.Loss]) -> Vector:
    spent, charges = terms.nothing_spent, []
    for loss in kinds:
        charge: Charge = terms.price(loss)
        sums = terms.after(spent, charge)
        charges.append({"loss": describe(loss), "costs": list(charge.costs), "spent": sums and list(sums)})
        spent = sums or spent
    shown = {"epsilon": str(terms.epsilon), "delta": str(terms.delta), "orders": list(terms.orders)}
    return {"name": name, **shown, "caps": list(terms.caps), "charges": charges}


def ledger() -> list[Vector]:
    """Return the vector of hashes: the entries of a stored ledger, their Merkle roots and seals."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(STORED) as archive:
        archive.extract("prepared/lapwing.ledger", folder, **_FILTER)
        place = Path(folder) / "prepared" / "lapwing.ledger"
        stored = sqlite3.connect(f"file:{place}?immutable=1", uri=True)
        bodies = [bytes(body) for (body,) in stored.execute("SELECT body FROM entries ORDER BY seq")]
        stored.row_factory = sqlite3.Row
        seals = [dict(row) for row in stored.execute("SELECT * FROM seals ORDER BY number")]
        stored.close()
    leaves, tree = [digest_of(body) for body in bodies], MerkleTree()
    roots = [tree.root]
    for leaf in leaves:
        tree.extend([leaf])
        roots.append(tree.root)
    places = ((0, 1), (0, len(leaves)), (5, 7), (len(leaves) - 1, len(leaves)))
    proofs = [
        {
            "index": index,
            "size": size,
            "path": [step.hex() for step in inclusion_proof(leaves, index, size)],
        }
        for index, size in places
    ]
    salt = hashlib.sha256(b"a salt that everybody knows").digest()
    labels, asked = ("orders", "Ümläute"), hashlib.sha256(b"SELECT COUNT(*) FROM orders").hexdigest()
    return [
        {
            "name": "a stored ledger",
            "entries": [body.decode("ascii") for body in bodies],
            "leaves": [leaf.hex() for leaf in leaves],
            "roots": [root.hex() for root in roots],
            "proofs": proofs,
            "seals": [
                {
                    name: value.hex() if isinstance(value, bytes) else value
                    for name, value in seal.items()
                    if name != "signature"
                }
                for seal in seals
            ],
            "names": [
                {"label": label, "salt": salt.hex(), "id": commitment(label, salt)} for label in labels
            ],
            "requests": [{"key": "ann/1", "digest": asked, "request": request_digest("ann/1", asked)}],
        }
    ]


def write(folder: Path) -> None:
    """Write the three files and their digests."""
    sums = ""
    for name, vectors in (("draws", draws()), ("prices", prices()), ("ledger", ledger())):
        text = json.dumps({"format": FORMAT, "vectors": vectors}, indent=1, ensure_ascii=False) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        sums += f"{hashlib.sha256(text.encode()).hexdigest()}  {name}.json\n"
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
