"""Check the test vectors with Python's standard library alone: draws, prices, hashes.

    python -I vectors/check.py [FOLDER]

Nothing of Lapwing is imported: each formula is written again from docs/arguments. Copy this file, and let
it read what your own implementation wrote. docs/reference/vectors.md describes files and algorithms.
"""

import hashlib
import json
import sys
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from functools import cache
from itertools import count
from math import comb, factorial, floor
from pathlib import Path

GUARD, PRECISIONS = 40, (100, 200, 400, 800)  # decimal digits that rounding may cost, and that are computed


def number(value):
    """Return a rational as a decimal number of the current precision."""
    value = Fraction(value)
    return Decimal(value.numerator) / Decimal(value.denominator)


# Draws. A real is a Fraction, or a function that computes it at the current precision.


def leading(real, bits):
    """Return floor(real * 2^bits), and whether real * 2^bits is that whole number."""
    if isinstance(real, Fraction):
        whole, rest = divmod(real.numerator << bits, real.denominator)
        return whole, not rest
    for digits in PRECISIONS:
        with localcontext(prec=digits):
            near = Fraction(real())
        error = near / 10 ** (digits - GUARD)
        low, high = floor((near - error) * 2**bits), floor((near + error) * 2**bits)
        if low == high:
            return low, False
    raise ValueError("a real is too close to a whole number")


def exp(exponent):
    return (lambda: number(exponent).exp()) if exponent else Fraction(1)


def weighted(weight, copies=lambda k: 1):
    """Return the cdf of weights that fall ever faster; weight k counts copies(k) times."""
    known = {}

    def cdf(symbol):
        least = Decimal(10) ** -getcontext().prec
        sums = known.setdefault(getcontext().prec, [])
        for k in count() if not sums else ():
            each = weight(k)
            sums += [(sums[-1] if sums else 0) + each * copy for copy in range(1, copies(k) + 1)]
            if each < least:
                break
        return sums[symbol] / sums[-1]  # the symbols of these vectors are far before the last

    return cdf


class Draws:
    """The samplers, over the random bytes of a vector: 64-bit words, the least byte first."""

    def __init__(self, text):
        self.left = bytes.fromhex(text)

    def words(self, count):
        taken, self.left = self.left[: 8 * count], self.left[8 * count :]
        if len(taken) < 8 * count:
            raise ValueError("more random bytes are needed than there are")
        return [int.from_bytes(taken[at : at + 8], "little") for at in range(0, 8 * count, 8)]

    def below(self, uniform, real):
        """Compare a uniform number [leading digits, their bits]; more are read when they do not decide."""
        while True:
            border, is_exact = leading(real, uniform[1])
            if uniform[0] != border or is_exact:
                return uniform[0] < border
            uniform[:] = uniform[0] << 64 | self.words(1)[0], uniform[1] + 64

    def coins(self, reals):
        return [int(self.below([word, 64], real)) for word, real in zip(self.words(len(reals)), reals)]

    def inversion(self, size, cdf, last=None):
        """Draw symbols 0, 1, 2, ...: how many cumulative probabilities are at or below a uniform number."""
        drawn = [0] * size
        for i, word in enumerate(self.words(size)):
            uniform = [word, 64]
            while drawn[i] != last and not self.below(uniform, lambda: cdf(drawn[i])):
                drawn[i] += 1
        return drawn

    def bernoulli(self, size, probability):
        return self.coins([Fraction(probability)] * size)

    def bernoulli_exp(self, size, x, rate):
        return self.coins([exp(-Fraction(value) * Fraction(rate)) for value in x])

    def geometric(self, size, scale, signed=False):
        t, drawn = Fraction(scale), []
        top = max(int(45 * t).bit_length(), 1)
        digit = [lambda j=j: 1 / (1 + number(2**j / t).exp()) for j in range(top)]
        reals = [*digit, exp(-(2**top) / t), *digit[:1] * signed]
        bits = self.coins(reals * size)
        for at in range(0, len(bits), len(reals)):
            value = sum(bit << j for j, bit in enumerate(bits[at : at + top]))
            if bits[at + top]:  # a geometric number has no memory: what goes beyond is a fresh one
                value = 2**top + self.geometric(1, scale)[0]
            drawn.append(~value if signed and bits[at + top + 1] else value)
        return drawn

    def discrete_laplace(self, size, scale):
        return self.geometric(size, scale, signed=True)

    def discrete_gaussian(self, size, sigma):
        rate = 1 / (2 * Fraction(sigma) ** 2)
        if Fraction(sigma) < 16:  # 0, 1, -1, 2, -2, ...
            cdf = weighted(lambda k: number(-rate * k * k).exp(), lambda k: 1 + (k > 0))
            return [(s + 1) // 2 * (1 if s % 2 else -1) for s in self.inversion(size, cdf)]
        width, kept = 1 << int(Fraction(sigma) / 12).bit_length() - 1, []
        cdf = weighted(lambda k: number(-rate * (k * width) ** 2).exp())
        while missing := size - len(kept):
            tried = missing + missing // 16 + 8
            starts, places = [width * s for s in self.inversion(tried, cdf)], self.words(tried)
            offsets = [place % width + (place >> 63) for place in places]
            coin = self.coins([exp(-rate * d * (2 * s + d)) for s, d in zip(starts, offsets)])
            found = zip(coin, starts, offsets, places)
            kept += [-(s + d) if place >> 63 else s + d for keep, s, d, place in found if keep][:missing]
        return kept

    def exponential_choice(self, size, scores, rate, counts=None):
        exponents = [Fraction(score) * Fraction(rate) for score in scores]
        copies, greatest = counts or [1] * len(scores), max(exponents)

        def cdf(symbol):
            weights = [times * number(x - greatest).exp() for x, times in zip(exponents, copies)]
            return sum(weights[: symbol + 1]) / sum(weights)

        return self.inversion(size, cdf, last=len(scores) - 1)

    def uniform_int(self, size, low, high):
        words, fair = self.words(size), 2**64 // (high - low) * (high - low)
        while again := [i for i, word in enumerate(words) if word >= fair]:
            for i, word in zip(again, self.words(len(again))):
                words[i] = word
        return [low + word % (high - low) for word in words]

    def permutation(self, size):
        while len(set(keys := self.words(size))) < size:
            pass
        return sorted(range(size), key=keys.__getitem__)

    def randomized_response(self, size, options, answers, epsilon=None, truth=None):
        chance = Fraction(truth) if truth else lambda: 1 / (1 + (options - 1) * number("-" + epsilon).exp())
        is_true, others = self.coins([chance] * size), self.uniform_int(size, 1, options)
        return [a if keep else (a + other) % options for keep, a, other in zip(is_true, answers, others)]

    def polya_share(self, size, scale, parties):
        """Draw differences of two sums of a Poisson number of logarithmic numbers."""
        t, sides = Fraction(scale), []
        poisson = weighted(lambda k: (-(1 - number(-1 / t).exp()).ln() / parties) ** k / factorial(k))
        for _ in range(2):
            numbers = self.inversion(size, poisson)
            parts = iter(self.logarithmic(sum(numbers), t))
            sides.append([sum(next(parts) for _ in range(n)) for n in numbers])
        return [first - second for first, second in zip(*sides)]

    def logarithmic(self, size, t):
        def ratio(s, d):
            return (lambda: number(-d / t).exp() * s / (s + d)) if d else Fraction(1)

        kept, blocks = [], weighted(lambda b: number((1 - 2**b) / t).exp())
        while missing := size - len(kept):
            starts = [1 << b for b in self.inversion(2 * missing + 8, blocks)]
            pairs = [(s, word % s) for s, word in zip(starts, self.words(len(starts)))]
            coin = self.coins([ratio(*pair) for pair in pairs])
            kept += [s + d for keep, (s, d) in zip(coin, pairs) if keep][:missing]
        return kept


def check_draw(vector):
    draws = Draws(vector["bytes"])
    drawn = getattr(draws, vector["sampler"])(vector["size"], **vector["parameters"])
    return drawn == vector["draws"] and not draws.left


# Prices, in whole units, rounded up: δ in 1e-18, ε and Rényi values in 1e-9.

NEVER, E, D = 2**62, 10**9, 10**18
SHARES = [Fraction(share, 100) for share in (9, 27, 36, 9, 9)]


def up(value, unit):
    """Return the least whole number of units; what is within 1e-50 of a whole number is that number."""
    units = (number(value) if isinstance(value, Fraction) else value) * unit
    near = units.to_integral_value()
    return int(near if abs(units - near) < Decimal("1e-50") else units.to_integral_value("ROUND_CEILING"))


@cache
def response(order, epsilon):
    a, e = Decimal(order), number(epsilon)
    return (((a * e).exp() + ((1 - a) * e).exp()) / (1 + e.exp())).ln() / (a - 1)


@cache
def laplace(order, scale, distance):
    a, e = order, number(distance / scale)
    q, r = number(-1 / scale).exp(), number((1 - 2 * order) / scale).exp()
    left, right = (1 + (1 - q) * r / (1 - r)) / (1 + q), (1 - (1 - q) / (1 - r)) / (1 + q)
    return (left * ((a - 1) * e).exp() + right * (-a * e).exp()).ln() / (a - 1)


@cache
def sampled(order, rate, rho):
    q, r = number(rate), number(rho)
    powers = ((1 - q) ** (order - k) * q**k * (k * (k - 1) * r).exp() for k in range(order + 1))
    return sum(comb(order, k) * power for k, power in enumerate(powers)).ln() / (order - 1)


def bounds(loss, orders):
    """Return δ₀, the pair (ε_b, δ_b) or None, and the Rényi values, of a described loss."""
    words = loss.keys() & {"epsilon", "delta", "scale", "rho", "rate"}
    get = {word: Fraction(loss[word]) for word in words}
    match loss["loss"]:
        case "Pure" | "Approximate" | "BoundedRange" as kind:
            e = get["epsilon"]
            curve = [response(a, e) if e else Decimal(0) for a in orders]
            if kind == "BoundedRange":
                curve = [min(value, number(a * e * e / 8)) for value, a in zip(curve, orders)]
            return get.get("delta", Fraction(0)), (e, Fraction(0)), curve
        case "LaplaceNoise":
            curve = [laplace(a, get["scale"], loss["distance"]) for a in orders]
            return Fraction(0), (loss["distance"] / get["scale"], Fraction(0)), curve
        case "Concentrated":
            return Fraction(0), None, [number(a * get["rho"]) for a in orders]
        case "GaussianNoise":
            return Fraction(0), None, [number(a * zcdp(loss)) for a in orders]
        case "SampledGaussian":
            return Fraction(0), None, [sampled(a, get["rate"], zcdp(loss["noise"])) for a in orders]
        case "Repeated":
            return combined([bounds(loss["each"], orders)] * loss["count"], sum)
        case "Sum" | "Worst" as kind:
            return combined([bounds(part, orders) for part in loss["parts"]], sum if kind == "Sum" else max)
    raise ValueError(f"no formula for {loss['loss']}")


def zcdp(noise):
    return Fraction(noise["l2_squared"]) / (2 * Fraction(noise["sigma"]) ** 2)


def combined(parts, how):
    deltas, pairs, curves = zip(*parts)
    pair = None if None in pairs else tuple(map(how, zip(*pairs)))
    return how(deltas), pair, list(map(how, zip(*curves)))


def costs_of(loss, orders):
    with localcontext(prec=120):
        delta0, pair, curve = bounds(loss, orders)
        pair = (up(pair[0], E), up(pair[1], D)) if pair else (NEVER, NEVER)
        return [up(delta0, D), *pair, *(up(value, E) for value in curve)]


def caps_of(epsilon, delta, orders):
    """Return the most that may be spent: of δ₀, ε_b, δ_b, then at each order."""
    e, d, rests = Fraction(epsilon), Fraction(delta), []
    with localcontext(prec=120):
        for a, share in zip(orders, SHARES) if d else ():
            logs = number(d * share).ln() + Decimal(a).ln()
            slack = number((a - 1) / Fraction(a)).ln() - logs / (a - 1)
            rests.append(max(floor((number(e) - slack) * E), -1))
    return [floor(d * D * 6 / 100), floor(e * E), floor(d * D * 4 / 100), *(rests or [-1] * len(orders))]


def after(caps, spent, costs):
    sums = [min(before + cost, cap + 1) for before, cost, cap in zip(spent, costs, caps)]
    holds = [total <= cap for total, cap in zip(sums, caps)]
    return sums if holds[0] and ((holds[1] and holds[2]) or any(holds[3:])) else None


def check_price(vector):
    spent, caps = [0] * 8, caps_of(vector["epsilon"], vector["delta"], vector["orders"])
    for charge in vector["charges"]:
        costs = costs_of(charge["loss"], vector["orders"])
        sums = after(caps, spent, costs)
        if costs != charge["costs"] or sums != charge["spent"]:
            return False
        spent = sums or spent  # a refused charge changes nothing
    return caps == vector["caps"]


# Hashes: entries, requests and names; the Merkle tree of RFC 9162; seals.


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def root(leaves):
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01", root(leaves[:split]), root(leaves[split:]))


def frontier(leaves):
    """Return the roots of the full subtrees, largest first."""
    full = 1 << len(leaves).bit_length() >> 1
    return root(leaves[:full]) + frontier(leaves[full:]) if leaves else b""


def path(leaves, index):
    if len(leaves) < 2:
        return []
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if index < split:
        return [*path(leaves[:split], index), root(leaves[split:])]
    return [*path(leaves[split:], index - split), root(leaves[:split])]


def check_ledger(vector):
    bodies = [text.encode("ascii") for text in vector["entries"]]
    records, leaves = [json.loads(body) for body in bodies], [sha256(b"\x00", body) for body in bodies]
    good = [json.dumps(record, separators=(",", ":")) for record in records] == vector["entries"]
    good &= [leaf.hex() for leaf in leaves] == vector["leaves"]
    good &= [root(leaves[:size]).hex() for size in range(len(leaves) + 1)] == vector["roots"]
    for proof in vector["proofs"]:
        steps = [step.hex() for step in path(leaves[: proof["size"]], proof["index"])]
        good &= steps == proof["path"] and 0 <= proof["index"] < proof["size"] <= len(leaves)
    previous, accounts, spent = bytes(32), {}, {}
    for nth, seal in enumerate(vector["seals"], 1):
        counts = b"".join(seal[name].to_bytes(8, "big") for name in ("number", "last", "size"))
        top, kept = root(leaves[: seal["size"]]), frontier(leaves[: seal["size"]])
        digest = sha256(b"lapwing seal\x00", bytes.fromhex(records[0]["ledger"]), counts, top, previous)
        wanted = {"root": top, "frontier": kept, "previous": previous, "digest": digest}
        good &= seal["number"] == nth and all(seal[name] == value.hex() for name, value in wanted.items())
        previous = digest
    for record in records:
        if record["kind"] == "account":
            accounts[record["account"]] = record["orders"], record["caps"]
            good &= caps_of(record["epsilon"], record["delta"], record["orders"]) == record["caps"]
        for account, ranges, debit in record.get("debits", ()):
            caps, costs = accounts[account][1], costs_of(record["loss"], accounts[account][0])
            for block in (block for first, last in ranges for block in range(first, last + 1)):
                before = spent.get((account, block), [0] * len(caps))
                sums = spent[account, block] = after(caps, before, costs)
                good &= [new - old for new, old in zip(sums, before)] == debit  # how far each sum moves
    for name in vector["names"]:
        good &= sha256(bytes.fromhex(name["salt"]), name["label"].encode()).hex()[:32] == name["id"]
    for asked in vector["requests"]:
        good &= sha256(f"{asked['key']}\n{asked['digest']}".encode()).hex() == asked["request"]
    return good


def main(folder):
    wrong, total = [], 0
    sums = dict(line.split("  ")[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    for name, check in (("draws", check_draw), ("prices", check_price), ("ledger", check_ledger)):
        content = (folder / f"{name}.json").read_bytes()
        if hashlib.sha256(content).hexdigest() != sums[f"{name}.json"]:
            wrong.append(f"{name}.json does not have the digest in SHA256SUMS")
        for vector in json.loads(content)["vectors"]:
            total += 1
            try:
                reason = "" if check(vector) else "another result was computed"
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                reason = repr(error)
            if reason:
                wrong.append(f"{name}.json: {vector['name']}: {reason}")
    print(*wrong, f"{total} vectors, {len(wrong)} wrong", sep="\n")
    return 1 if wrong or not total else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)))
