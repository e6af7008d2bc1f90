"""Junction trees cover what is measured, and every column's cliques are connected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.errors import BadParameter
from lapwing.publish.models.domain import Clique, Domain, JunctionTree, junction_tree, tree_cells

COLUMNS = ("a", "b", "c", "d", "e", "f", "g")
DOMAIN = Domain(COLUMNS, (2, 3, 5, 2, 4, 3, 2))
MARGINALS = st.lists(st.sets(st.sampled_from(COLUMNS), min_size=1, max_size=4), max_size=8)


def connected(tree: JunctionTree, column: str) -> bool:
    holders = {k for k, clique in enumerate(tree.cliques) if column in clique}
    inside = [edge for edge in tree.edges if column in edge.separator]
    return len(inside) == len(holders) - 1 and all({e.child, e.parent} <= holders for e in inside)


@given(MARGINALS)
def test_every_marginal_is_inside_a_clique_and_every_columns_cliques_are_connected(
    found: list[set[str]],
) -> None:
    marginals: list[Clique] = [DOMAIN.clique(one) for one in found]
    tree = junction_tree(DOMAIN, marginals)
    assert all(tree.holder(marginal) is not None for marginal in [*marginals, *((c,) for c in COLUMNS)])
    assert all(connected(tree, column) for column in COLUMNS)
    assert len(tree.edges) == len(tree.cliques) - 1
    done = set[int]()
    for edge in tree.edges:  # children come before their parents
        assert edge.parent not in done
        done.add(edge.child)
    assert tree_cells(DOMAIN, marginals) == sum(map(DOMAIN.cells, tree.cliques))


def test_a_domain_is_checked() -> None:
    for columns, sizes in [((), ()), (("a", "a"), (2, 2)), (("a",), (0,)), (("a", "b"), (2,))]:
        with pytest.raises(BadParameter):
            Domain(columns, sizes)
    with pytest.raises(BadParameter):
        DOMAIN.clique(["a", "z"])


def test_a_column_of_one_value_counts_as_two() -> None:
    """So few cells mean few columns in a clique: tables have a limit of axes, too."""
    names = tuple(f"c{k}" for k in range(40))
    assert tree_cells(Domain(names, (1,) * 40), [names]) == 1 << 40
