"""The sampled stage finds what is broken, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.stages import outputs as outputs_module
from lapwing.audit.stages.events import FAMILIES, applicable, best_event
from lapwing.audit.stages.inside import canonical
from lapwing.audit.stages.outputs import Outputs, Pool, outcomes, pooled
from lapwing.audit.stages.sampled import Draw, SampledPair, attack_pair, sampled_stage
from lapwing.core.laplace import Laplace
from lapwing.core.noise import bernoulli, discrete_gaussian, discrete_laplace, uniform_int
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import BadParameter, BadValue

ERROR = 1e-9  # false-alarm rate of every verdict below


class ToldClock:
    """The clock of the stage: only draws take time, and as long on a busy machine."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ToldClock:
    told = ToldClock()
    monkeypatch.setattr("lapwing.audit.stages.sampled.time", told)
    return told


def _shifted(noise: Callable[[int], NDArray[np.int64]]) -> SampledPair:
    return SampledPair("0 and 1", noise, lambda size: noise(size) + 1)


def _laplace(scale: str | int, shift: int = 1) -> SampledPair:
    return SampledPair(
        "0 and 1",
        lambda size: discrete_laplace(scale, size),
        lambda size: discrete_laplace(scale, size) + shift,
    )


def _numpy_laplace(generator: np.random.Generator, value: float) -> Draw:
    return lambda size: value + generator.laplace(0, 1, size)


def test_the_attack_is_sharp_where_the_claim_is_tight() -> None:
    """Randomized response and the Laplace count reach their ε; 200,000 draws must show 95 % of it."""
    coins = RandomizedResponse.two_coins()
    response = SampledPair(
        "0 and 1",
        lambda size: coins.sample(np.zeros(size, dtype=int)),
        lambda size: coins.sample(np.ones(size, dtype=int)),
    )
    for pair, epsilon in ((response, coins.loss.epsilon), (_laplace(1), Fraction(1))):
        verdict = attack_pair(pair, epsilon, draws=200_000, error=1e-6)
        assert verdict.holds
        assert verdict.at_least > 0.95 * epsilon


def test_noise_at_half_the_scale_is_caught() -> None:
    assert not attack_pair(_laplace("0.5"), 1, draws=20_000, error=ERROR).holds


@pytest.mark.parametrize(("scale", "draws"), [("0.8", 20_000), ("0.90909", 120_000)])
def test_noise_a_bit_too_small_is_caught(scale: str, draws: int) -> None:
    """A true ε of 1.25 and of 1.1: 46,000 draws are needed for 1.1 with the best event known."""
    assert not attack_pair(_laplace(scale), 1, draws=draws, error=1e-6).holds


def test_wide_noise_too_small_is_caught_by_order() -> None:
    """Scale 800 for a sensitivity of 1,000: no single output is frequent."""
    verdict = attack_pair(_laplace(800, 1000), 1, draws=40_000, error=1e-6)
    assert verdict.violation is not None
    assert verdict.violation.family == "order of numbers"
    assert attack_pair(_laplace(1000, 1000), 1, draws=40_000, error=1e-6).holds


def test_noise_on_a_coarse_grid_is_caught_by_last_bits() -> None:
    pair = SampledPair(
        "0 and 1", lambda n: 64 * discrete_laplace(1000, n), lambda n: 64 * discrete_laplace(1000, n) + 1
    )
    verdict = attack_pair(pair, 1, draws=4_000, error=ERROR)
    assert verdict.violation is not None
    assert verdict.violation.family == "last bits"


def test_bounded_noise_is_caught() -> None:
    assert not attack_pair(
        _shifted(lambda size: uniform_int(-5, 6, size)), 1, draws=20_000, error=ERROR
    ).holds


def test_float_noise_is_caught_by_its_low_bits() -> None:
    """N1: whether y · 2⁵³ is whole tells 0 from 1 under naive float noise at a claimed ε = 1."""
    generator = np.random.default_rng(1)
    pair = SampledPair("0 and 1", _numpy_laplace(generator, 0), _numpy_laplace(generator, 1))
    verdict = attack_pair(pair, 1, draws=40_000, error=1e-6)
    assert verdict.at_least >= 5
    assert verdict.violation is not None
    assert verdict.violation.family == "lowest bit of floats"


def test_negative_zero_is_caught() -> None:
    def draw(zero: float) -> Draw:
        return lambda size: np.where(uniform_int(0, 2, size) == 1, zero, 1.0)

    assert not attack_pair(SampledPair("", draw(0.0), draw(-0.0)), 1, draws=2_000, error=ERROR).holds


def test_an_error_is_an_outcome() -> None:
    def release(value: int) -> float:
        if value and not uniform_int(0, 10, 1)[0]:
            raise ValueError("too large")
        return float(discrete_laplace(100, 1)[0])

    pair = SampledPair("0 and 1", outcomes(lambda: release(0)), outcomes(lambda: release(1)))
    verdict = attack_pair(pair, 1, draws=4_000, error=ERROR)
    assert verdict.violation is not None
    assert verdict.violation.is_reversed


def test_a_key_that_is_there_is_caught() -> None:
    def keys(person: bool) -> Draw:
        def release() -> list[str]:
            noise = [str(key) for key in np.flatnonzero(bernoulli(Fraction(1, 2), 40))]
            return [*noise, "rare"] if person and uniform_int(0, 10, 1)[0] else noise

        return lambda size: [release() for _ in range(size)]

    verdict = attack_pair(SampledPair("", keys(False), keys(True)), 1, draws=3_000, error=ERROR)
    assert verdict.violation is not None
    assert verdict.violation.family in {"keys", "classifier"}


def test_a_length_is_caught() -> None:
    def release(longer: int) -> Draw:
        return lambda size: ["x" * int(n) for n in uniform_int(0, 3, size) + longer * 2]

    assert not attack_pair(SampledPair("", release(0), release(1)), 1, draws=2_000, error=ERROR).holds


def test_a_little_in_every_column_is_caught_by_the_classifier() -> None:
    """Each of 30 columns has ε of about .1; together they have much more than 1."""

    def rows(shift: int) -> Draw:
        signs = np.array([1, -1] * 15)
        return lambda size: discrete_gaussian(10, 30 * size).reshape(size, 30) + 4 * shift * signs

    verdict = attack_pair(SampledPair("", rows(0), rows(1)), 1, draws=10_000, error=ERROR)
    assert verdict.violation is not None
    assert verdict.violation.family == "classifier"


def test_histograms_as_mappings_are_compared_by_key() -> None:
    def tables(count: int) -> Draw:
        def draw(size: int) -> Outputs:
            noisy = discrete_laplace(2, 3 * size).reshape(size, 3) + np.array([count, 7, 0])
            return [{"a": float(a) + 0.5, "b": int(b), "c": int(c)} for a, b, c in noisy]

        return draw

    assert not attack_pair(SampledPair("", tables(0), tables(8)), 1, draws=4_000, error=ERROR).holds


def test_several_points_of_a_curve_are_attacked() -> None:
    """(1, .1) holds for this response, but the further claim (0, .15) does not."""
    coins = RandomizedResponse.for_epsilon("0.5", options=2)
    pair = SampledPair(
        "",
        lambda size: coins.sample(np.zeros(size, dtype=int)),
        lambda size: coins.sample(np.ones(size, dtype=int)),
    )
    assert attack_pair(pair, 1, "0.1", draws=20_000, error=ERROR).holds
    verdict = attack_pair(pair, 1, "0.1", draws=20_000, error=ERROR, curve=[(0, "0.15")])
    assert verdict.violation is not None
    assert verdict.violation.delta == 0.15
    assert verdict.at_least < 1


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_is_said() -> None:
    """At error 0.2 on a tight claim: of 150 attacks, 55 or more would alarm with probability 1e-6."""
    coins = RandomizedResponse.two_coins()

    def report(answer: int) -> Draw:
        return lambda size: coins.sample(np.full(size, answer))

    pair = SampledPair("tight", report(0), report(1))
    alarms = sum(not attack_pair(pair, coins.loss.epsilon, draws=200, error=0.2).holds for _ in range(150))
    assert alarms < 55


@pytest.mark.slow
def test_a_thousand_audits_of_correct_mechanisms_give_no_alarm() -> None:
    coins = RandomizedResponse.two_coins()
    wide = Laplace.for_epsilon(1, l1=1000)

    def three(values: list[int]) -> Draw:
        return lambda size: wide.sample(values * size).reshape(size, 3)

    def scaled(value: int) -> Draw:
        return lambda size: wide.sample([value] * size) / 7

    pairs: list[tuple[SampledPair, Fraction]] = [
        (_laplace(1), Fraction(1)),
        (_laplace(1000, 1000), Fraction(1)),
        (SampledPair("", three([0, 0, 0]), three([300, -300, 400])), Fraction(1)),
        (SampledPair("", scaled(0), scaled(1000)), Fraction(1)),
        (
            SampledPair("", lambda n: coins.sample([0] * n), lambda n: coins.sample([1] * n)),
            coins.loss.epsilon,
        ),
    ]
    for pair, epsilon in pairs:
        assert all(attack_pair(pair, epsilon, draws=2_000, error=1e-6).holds for _ in range(200))


def test_an_event_is_never_counted_on_the_draws_that_chose_it() -> None:
    """Outputs that are all different tell nothing; counted where they were chosen, they would."""
    pair = SampledPair("noise", lambda n: uniform_int(0, 1 << 60, n), lambda n: uniform_int(0, 1 << 60, n))
    assert attack_pair(pair, 1, draws=4_000, error=1e-3).at_least == 0


class TestTheStage:
    def test_it_reports_a_witness_with_counts(self) -> None:
        result = sampled_stage([_laplace(1), _laplace("0.5")], 1)(StageBudget(seconds=4, is_thorough=False))
        assert result.stage is Stage.SAMPLED
        assert result.witness is not None
        assert result.witness.at_least is not None
        assert result.witness.at_least > 1
        assert result.measured == result.witness.at_least
        assert result.witness.numbers["fresh draws on each input"] == 10_000

    def test_it_says_what_it_could_have_shown_and_how_error_is_divided(self) -> None:
        result = sampled_stage([_laplace(1)], 1)(StageBudget(seconds=4, is_thorough=False))
        assert result.holds
        assert result.could_show is not None
        assert 1.1 < result.could_show < 1.15
        assert "1e-06 in all, divided over 1 pairs x 2 directions x 1 families" in result.notes[0]
        assert "2.5e-07 for each bound" in result.notes[0]
        assert any("not judged" in note for note in result.notes)

    @pytest.mark.slow
    def test_what_it_could_show_is_shown_in_about_half_of_the_runs(self) -> None:
        result = sampled_stage([_laplace(1)], 1)(StageBudget(seconds=4, is_thorough=False))
        assert result.could_show is not None
        lie = 1 / (1 + np.exp(result.could_show))

        def response(side: int) -> Draw:
            return lambda size: bernoulli(Fraction(lie), size) ^ bool(side)

        pair = SampledPair("", response(0), response(1))
        caught = sum(not attack_pair(pair, 1, draws=20_000, error=1e-6).holds for _ in range(20))
        assert 2 <= caught <= 18

    def test_a_claim_that_so_few_draws_cannot_break_is_not_passed(self) -> None:
        result = sampled_stage([_laplace(1)], 30)(StageBudget(seconds=1, is_thorough=False))
        assert not result.holds
        assert "more seconds" in result.unable

    def test_slow_draws_stay_within_the_time(self) -> None:
        def slow(size: int) -> Outputs:
            return np.array([discrete_laplace(1, 1)[0] for _ in range(size)])

        result = sampled_stage([SampledPair("", slow, slow)], "0.5")(StageBudget(seconds=0.5))
        assert result.holds
        assert int(result.notes[2].split(" draws")[0].split(": ")[-1].replace(",", "")) < 100_000

    def test_a_first_call_that_is_slow_only_once_does_not_decide(self, clock: ToldClock) -> None:
        calls: list[int] = []

        def draw(size: int) -> Outputs:
            if not calls:
                clock.now += 0.3  # as if tables were made
            calls.append(size)
            return discrete_laplace(1, size)

        result = sampled_stage([SampledPair("", draw, draw)], 1)(StageBudget(seconds=1, is_thorough=False))
        assert result.holds
        assert sum(calls) > 2 * 10_000

    def test_another_number_of_outputs_is_refused(self) -> None:
        short = SampledPair("", lambda n: [1] * n, lambda n: [1] * (n - 1))
        with pytest.raises(BadValue, match="return one per draw"):
            attack_pair(short, 1, draws=100, error=0.1)

    @pytest.mark.parametrize(("epsilon", "delta"), [(-1, 0), (1, 1), (1, -1)])
    def test_impossible_claims_are_refused(self, epsilon: int, delta: int) -> None:
        with pytest.raises(BadParameter):
            sampled_stage([_laplace(1)], epsilon, delta)


@pytest.mark.slow
def test_four_families_cost_little_of_the_shown_bound() -> None:
    four = {name: FAMILIES[name] for name in ("likelihood order", "order of numbers", "last bits")}
    many = {**four, "order again": FAMILIES["order of numbers"]}
    one = {"likelihood order": FAMILIES["likelihood order"]}
    # 1.3 times the draws of one family show as much: .012 more in the mean. One bound deviates by .016, so
    # that the means of 100 differ by less than 0 in one run of 10 million.
    alone, among = (
        np.mean([attack_pair(_laplace("0.8"), 1, draws=draws, error=1e-6, families=families).at_least
                 for _ in range(100)])
        for draws, families in ((20_000, one), (26_000, many))
    )  # fmt: skip
    assert among > alone


def _nonce(size: int) -> list[int]:
    return [int(number) for number in uniform_int(0, 1 << 48, size)]


FORMS: dict[str, Callable[[int, int], object]] = {
    "text": lambda nonce, count: f"{nonce:012x} {count:03d}",
    "digits of a text": lambda nonce, count: f"{count}.{nonce:015d}",
    "bytes": lambda nonce, count: nonce.to_bytes(6, "little") + bytes([count]),
    "nested mapping": lambda nonce, count: {"answer": {"count": count + nonce / 2**60}},
    "nested list": lambda nonce, count: [[[count + nonce / 2**60]]],
    "records": lambda nonce, count: {"id": f"{nonce:x}", "rows": [{"name": "all", "count": count}]},
    "set of texts": lambda nonce, count: {f"{nonce:x}:{count}"},
    "error": lambda nonce, count: ValueError(f"{nonce} of {count}"),
    "tuple or list": lambda nonce, count: [nonce] if count == 3 else (nonce,),
    "payload of NaN": lambda nonce, count: [
        float(np.array([0x7FF8 << 48 | count], dtype=np.uint64).view(np.float64)[0]),
        nonce,
    ],
    "a late key": lambda nonce, count: (
        {f"k{place}": nonce % (place + 7) for place in range(50)} | {"k40": count}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_exact_count_inside_outputs_that_are_all_different_is_caught(form: str) -> None:
    def draw(count: int) -> Draw:
        return lambda size: [FORMS[form](nonce, count) for nonce in _nonce(size)]

    assert attack_pair(SampledPair("", draw(3), draw(3)), 1, draws=200, error=ERROR).holds
    assert not attack_pair(SampledPair("", draw(3), draw(4)), 1, draws=400, error=ERROR).holds


def test_an_exact_cell_of_a_wide_histogram_is_caught() -> None:
    def draw(count: int) -> Draw:
        def rows(size: int) -> Outputs:
            noisy = discrete_laplace(50, 100 * size).reshape(size, 100)
            noisy[:, 70] = count
            return noisy

        return rows

    assert not attack_pair(SampledPair("", draw(3), draw(4)), 1, draws=400, error=ERROR).holds


def test_the_same_noise_in_two_columns_is_caught_by_their_difference() -> None:
    def draw(count: int) -> Draw:
        def rows(size: int) -> Outputs:
            noise = discrete_laplace(10**6, size)
            return np.column_stack([discrete_laplace(10**6, size), count + noise, noise])

        return rows

    verdict = attack_pair(SampledPair("", draw(3), draw(4)), 1, draws=1_000, error=ERROR)
    assert {event.family for event in verdict.events if event.is_violation} >= {"difference of columns"}


def test_outputs_into_which_no_event_looks_are_not_passed() -> None:
    def sets(size: int) -> Outputs:
        return [{(), (int(n),)} for n in uniform_int(0, 1 << 40, size)]

    one = {"likelihood order": FAMILIES["likelihood order"]}
    stage = sampled_stage([SampledPair("", sets, sets)], 1, families=one, draws=400)
    result = stage(StageBudget(seconds=1, is_thorough=False))
    assert not result.holds
    assert "no event looks inside" in result.unable


def test_an_unknown_class_is_refused() -> None:
    pair = SampledPair("", lambda n: [object() for _ in range(n)], lambda n: [object() for _ in range(n)])
    with pytest.raises(BadValue, match="cannot be told apart"):
        attack_pair(pair, 1, draws=100, error=0.1)


def test_codes_do_not_depend_on_the_type_of_the_whole_call() -> None:
    """A rare NaN makes all numbers of its call floats: 1 and 1.0 are one output."""
    assert canonical(1) == canonical(1.0) == canonical(np.uint8(1)) == canonical(True)
    assert canonical(0.0) != canonical(-0.0)
    assert canonical((1 << 53) + 1) != canonical(float(1 << 53))


def test_which_families_apply_is_decided_by_the_choosing_half() -> None:
    """The fresh half is replaced by other outputs, and neither families nor events change."""
    texts = [f"{nonce} of {nonce % 3}" for nonce in _nonce(400)]
    pool = pooled(texts, texts)
    strange = [value if is_in else 7 for value, is_in in zip(pool.outputs, pool.chooses, strict=True)]
    other = _pool_of(strange, pool)
    assert list(applicable(pool, FAMILIES)) == list(applicable(other, FAMILIES))
    for name, codes in applicable(other, FAMILIES).items():
        before = applicable(pool, FAMILIES)[name]
        one = best_event(before, pool, 0, is_reversed=False)
        again = best_event(codes, other, 0, is_reversed=False)
        assert one.share == again.share, name


def _pool_of(outputs: list[object], pool: Pool) -> Pool:
    size = len(outputs) // 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs_module, "permutation", np.arange)
        return pooled(outputs[:size], outputs[size:])


def test_the_notes_name_the_easiest_law_and_what_happens_too_rarely() -> None:
    result = sampled_stage([_laplace(1)], 1, draws=20_000)(StageBudget())
    assert any("for the easiest law" in note for note in result.notes)
    [rarely] = [note for note in result.notes if "reveals the input" in note]
    least = float(rarely.split("about ")[1].split(";")[0])
    assert 0.001 < least < 0.01


def test_a_stage_that_could_show_nothing_is_not_passed() -> None:
    """One family could be shown with these draws, but not as many families as there are."""

    def leak(bit: int) -> Draw:
        return lambda size: [{"a": float(n), "b": str(n)} for n in _nonce(size)]

    result = sampled_stage([SampledPair("", leak(0), leak(0))], 4, draws=1_700)(StageBudget())
    assert "could not have shown any violation" in result.unable


def test_slow_draws_get_a_least_number_before_the_stage_says_that_it_is_unable(clock: ToldClock) -> None:
    def slow(size: int) -> Outputs:
        clock.now += 2e-4 * size
        return discrete_laplace(1, size)

    result = sampled_stage([SampledPair("", slow, slow)], 1)(StageBudget(seconds=0.1))
    assert result.holds
    assert any("4,000 draws" in note for note in result.notes)


def test_too_little_power_is_no_pass() -> None:
    """As under load: few draws are left, which would show only a gross violation."""
    result = sampled_stage([_laplace(1)], 1, draws=1000)(StageBudget(is_thorough=False))
    assert result.witness is None
    assert not result.holds
    assert "not enough power: 1,000 draws" in result.unable


def test_draws_follow_from_the_wanted_power_and_the_power_is_told() -> None:
    results = [
        sampled_stage([_laplace(1)], 1)(StageBudget(seconds=seconds, is_thorough=False))
        for seconds in (20, 60)
    ]
    assert [result.notes[-1] for result in results] == [results[0].notes[-1]] * 2
    assert results[0].notes[-1].startswith("power: a true ε of 1.1")
    assert results[0].could_show == results[1].could_show
