"""Classes that are written otherwise in the rows are told, by noisy counts that the fit pays for."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone  # type: ignore[import-untyped]

from lapwing.errors import BadParameter, ClassNotSeen, KeyReused
from lapwing.learn.payer import EACH_ROW, LedgerPayer, PublicData
from lapwing.learn.trainers import AdditiveTrees, Binned, Category, LogisticRegression, NaiveBayes, Real
from lapwing.learn.trainers.estimator import COUNT, is_much_undeclared, unseen_classes
from lapwing.learn.trainers.priced_releases import PricedReleases
from lapwing.ledger import Ledger, Unit
from lapwing.sql.policy.kinds import Choice
from support.ledgers import Home, open_account
from support.raised import named

PAID: dict[str, Any] = {"epsilon": 1, "delta": "1e-6", "payer": PublicData()}
EDGES = Binned([-0.5, 0, 0.5])
TRAINERS: dict[str, Any] = {
    "logistic": LogisticRegression(columns=Real(-1, 1), classes=("no", "Yes"), size=3000, **PAID),
    "naive Bayes": NaiveBayes(columns=EDGES, classes=("no", "Yes"), **PAID),
    "trees": AdditiveTrees(columns=EDGES, classes=("no", "Yes"), passes=1, **PAID),
}
X = np.random.default_rng(5).uniform(-1, 1, (3000, 2))
each = pytest.mark.parametrize("name", TRAINERS)


def labels(yes: str) -> Any:
    return np.where(X[:, 0] > 0, yes, "no")


@each
def test_a_class_in_another_case_is_told(name: str) -> None:
    with pytest.raises(ClassNotSeen) as seen:
        TRAINERS[name].fit(X, labels("yes"))
    assert seen.value.classes == ("'Yes'",)
    assert 0.3 < seen.value.share < 0.7
    assert seen.value.code == "class-not-seen"


@each
def test_all_classes_in_another_case_are_told(name: str) -> None:
    with pytest.raises(ClassNotSeen) as seen:
        clone(TRAINERS[name]).set_params(classes=("No", "Yes")).fit(X, labels("yes"))
    assert seen.value.classes == ("'No'", "'Yes'")
    assert seen.value.share > 0.9


@each
def test_nothing_is_told_of_classes_that_are_right(name: str) -> None:
    model = clone(TRAINERS[name]).fit(X, labels("Yes"))
    assert abs(model.class_counts_.sum() - 3000) < 10 * model.class_counts_sigma_
    assert model.undeclared_share_ < 0.15
    clone(model).fit(X, ["no"] * 3000)  # one class, and no other one instead
    clone(model).fit(X[:0], [])
    clone(model).fit(X[:3], ["never"] * 3)  # so few rows are lost in the noise


def test_other_classes_beside_the_declared_ones_warn() -> None:
    y = labels("Yes")
    y = np.where(np.arange(3000) % 3 == 0, "YES", y)
    with pytest.warns(UserWarning, match="none of the declared classes"):
        model = clone(TRAINERS["naive Bayes"]).fit(X, y)
    assert 0.2 < model.undeclared_share_ < 0.5


def test_nothing_more_is_released_of_rows_with_unseen_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[int] = []
    real = PricedReleases.release

    def release(run: PricedReleases, part: int, sums: Any) -> Any:
        released.append(part)
        return real(run, part, sums)

    monkeypatch.setattr(PricedReleases, "release", release)
    with pytest.raises(ClassNotSeen):
        TRAINERS["logistic"].fit(X, labels("yes"))
    assert released == [2]


def test_the_counts_are_part_of_the_price() -> None:
    checked, unchecked = TRAINERS["logistic"], clone(TRAINERS["logistic"]).set_params(class_check=0)
    both = [trainer._price(2) for trainer in (checked, unchecked)]
    assert [len(run.parts) for run in both] == [3, 2]
    assert all(run.loss.pair[0] <= 1 for run in both)
    assert both[0].sigmas[1] / both[1].sigmas[1] < 1.006  # a hundredth of the run is half of that in noise
    assert both[0].parts[2].l2_squared == COUNT**2


def test_a_class_is_unseen_only_beside_many_rows_of_none() -> None:
    sigma = 40.0
    assert unseen_classes(np.array([900.0, 10.0, 500.0]), sigma) == [1]
    assert unseen_classes(np.array([900.0, 10.0, 200.0]), sigma) == []  # that may be noise
    assert unseen_classes(np.array([900.0, 400.0, 500.0]), sigma) == []
    assert unseen_classes(np.array([-50.0, 10.0, 500.0]), sigma) == [0, 1]
    assert unseen_classes(np.array([90_000.0, 10.0, 500.0]), sigma) == []  # few rows in a hundred
    assert not is_much_undeclared([0.0, 0.0, -5.0], sigma)


@pytest.mark.parametrize("share", [-1, 1, "much"])
def test_a_share_of_another_form_is_refused(share: Any) -> None:
    with pytest.raises(BadParameter, check=named("class_check")):
        clone(TRAINERS["logistic"]).set_params(class_check=share).fit(X, labels("Yes"))


# Charged


@pytest.fixture
def ledger(file_home: Home) -> Ledger:
    made = file_home.create()
    open_account(made, epsilon=5, delta="1e-5")
    return made


def payer(ledger: Ledger, key: str | None = None) -> LedgerPayer:
    found = LedgerPayer.for_account(ledger, "visits", analyst="ann", request="version 1", key=key)
    assert found.unit is Unit.PERSON
    return found


def test_the_charge_stays_and_the_same_fit_tells_it_again(ledger: Ledger) -> None:
    for _ in range(2):
        with pytest.raises(ClassNotSeen):
            TRAINERS["naive Bayes"].fit(X, labels("yes"), EACH_ROW, payer=payer(ledger, "once"))
        assert 0.98e9 < ledger.blocks("visits")[0].spent[1] <= 1e9


def test_a_model_that_was_stored_without_counts_is_still_found(ledger: Ledger) -> None:
    """Earlier versions asked for no counts, and had no such parameter in their digest."""
    trainer = clone(TRAINERS["naive Bayes"])
    run = clone(trainer).set_params(class_check=0)._price(2)
    stored = json.dumps({"logs": [[-1.0, -2.0]] * 8, "prior": [-0.5, -0.5]}).encode()
    paid = payer(ledger, "once")
    before = paid.pay(
        run.loss, lambda: stored, mechanism=trainer.mechanism, parameters=trainer._settings(2)
    )
    cost = ledger.blocks("visits")[0].spent[1]
    model = trainer.fit(X, labels("Yes"), EACH_ROW, payer=paid)
    assert before.receipt is not None
    assert model.receipt_.position == before.receipt.position
    assert model.prior_.tolist() == [-0.5, -0.5]
    assert model.undeclared_share_ is None
    assert ledger.blocks("visits")[0].spent[1] == cost
    with pytest.raises(KeyReused):
        clone(trainer).set_params(epsilon="0.5").fit(X, labels("Yes"), EACH_ROW, payer=paid)


def test_no_count_is_made_where_none_is_wanted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = clone(TRAINERS["naive Bayes"]).set_params(class_check=0).fit(X, labels("yes"))
    assert model.class_counts_ is None


def test_classes_may_be_an_array() -> None:
    given = clone(TRAINERS["naive Bayes"]).set_params(classes=np.array(["no", "Yes"]))
    assert given.fit(X, labels("Yes")).classes_.tolist() == ["no", "Yes"]


def test_every_class_of_a_long_array_is_a_setting() -> None:
    """NumPy shows three of them at each end: two fits would have one key."""
    trainer, known = clone(TRAINERS["naive Bayes"]), np.arange(2000)
    swapped = known.copy()
    swapped[[900, 901]] = [901, 900]
    trainer.set_params(columns=Category(["a", "b"]))
    one, other = (clone(trainer).set_params(classes=classes) for classes in (known, swapped))
    assert one._settings(2) != other._settings(2)
    columns = {"x": Choice(("a", "b")), "y": Choice(tuple(known.tolist()))}
    asked = [model.plan_fit(columns, label=None, epsilon=1, delta="1e-6") for model in (one, other)]
    assert asked[0].parameters != asked[1].parameters
