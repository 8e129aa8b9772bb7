"""Noise is calibrated to the smallest sum that the protocol can be made to open, and all pages say the same number."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Limits, Privacy, RowStudy
from blindbayes.codebook import Categorical, Codebook
from blindbayes.dp.distributed.noise_shares import dishonest
from blindbayes.errors import PrivacyError
from blindbayes.protocols import registry
from blindbayes.study.tasks.sum_plan import Sum
from support.oracles import remaining_epsilon

BOOK = Codebook("c", ("a", "b"), (Categorical("x", ("p", "q")),), max_rows=10**6)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"p{at}" for at in range(count))


def smallest(
    protocol: str, parties: int, quorum: int | None, colluders: int, malicious: bool, corrupt: float = 0.1, **options: Any
) -> int:
    setting = registry.SumSetup(names(parties), 1, quorum, bound=1000, options=options, corrupt=corrupt)
    return registry.load(protocol).smallest(setting, colluders, malicious=malicious).honest


TABLE = [  # parties, quorum, dishonest, honest against a server that deviates, that follows
    (3, 3, 1, 2, 2),
    (4, 3, 1, 2, 2),
    (5, 4, 1, 3, 3),
    (6, 4, 2, 0, 2),
    (6, 5, 2, 3, 3),
    (7, 5, 2, 3, 3),
    (8, 6, 2, 4, 4),
    (9, 6, 3, 0, 3),
    (9, 7, 3, 4, 4),
    (10, 7, 3, 4, 4),
    (11, 8, 3, 5, 5),
    (12, 8, 4, 0, 4),
    (12, 9, 4, 5, 5),
]


@pytest.mark.parametrize(("parties", "quorum", "corrupt", "deviates", "follows"), TABLE)
def test_the_smallest_masked_sum(parties: int, quorum: int, corrupt: int, deviates: int, follows: int) -> None:
    """The review's table: at 6, 9 and 12 parties the usual quorum let two sets be opened."""
    assert corrupt == dishonest(parties, 2 / 3)
    assert smallest("masked_sum", parties, quorum, corrupt, True) == deviates
    assert smallest("masked_sum", parties, quorum, corrupt, False) == follows


@pytest.mark.parametrize(("parties", "least", "most"), [(100, 10, 57), (1_000, 40, 567), (10_000, 60, 5_667)])
def test_a_sparse_graph_leaves_a_neighbourhood_to_a_server_that_deviates(parties: int, least: int, most: int) -> None:
    """t - c(u) of the SPEC: far fewer than the honest survivors; and nothing at all on a graph planned for 10% colluders."""
    quorum, corrupt = math.ceil(0.9 * parties), dishonest(parties, 2 / 3)
    found = smallest("masked_sum", parties, quorum, corrupt, True, corrupt=corrupt / parties)
    assert least <= found < most
    assert smallest("masked_sum", parties, quorum, corrupt, False, corrupt=corrupt / parties) == most
    if parties > 100:
        assert smallest("masked_sum", parties, quorum, corrupt, True) == 0
    setting = registry.SumSetup(names(parties), 1, quorum, corrupt=corrupt / parties)
    assert 0 < registry.load("masked_sum").smallest(setting, corrupt, malicious=True).failure < 2.0**-39


OTHERS = [
    ("oblivious_sum", 5, None, 3, True, {}, 2),
    ("oblivious_sum", 6, 4, 2, True, {}, 0),
    ("oblivious_sum", 6, 5, 2, True, {}, 3),
    ("oblivious_sum", 6, 4, 2, False, {}, 2),
    ("oblivious_sum", 1_000, None, 333, True, {}, 667),
    ("oblivious_sum", 10_000, None, 5_000, True, {}, 0),  # two whole segments by chance: more than 2^-40
    ("oblivious_sum", 10_000, None, 5_000, True, {"width": 24}, 5_000),
    ("oblivious_sum", 1_000, 900, 15, True, {}, 885),
    ("oblivious_sum", 1_000, 900, 16, True, {}, 0),
    ("chain_sum", 10, None, 8, True, {}, 2),
    ("chain_sum", 100, None, 7, False, {}, 93),
    ("chain_sum", 100, None, 7, True, {}, 0),
    ("chain_sum", 100, None, 8, False, {}, 0),
    ("ring_sum", 9, None, 3, True, {}, 6),
    ("ring_sum", 9, None, 4, True, {}, 0),
    ("ring_sum", 9, None, 7, True, {"rings": 4}, 2),
    ("reference", 9, None, 3, False, {}, 1),
]


@pytest.mark.parametrize(("protocol", "parties", "quorum", "corrupt", "malicious", "options", "honest"), OTHERS)
def test_the_smallest_sum_of_other_protocols(
    protocol: str, parties: int, quorum: int | None, corrupt: int, malicious: bool, options: dict[str, Any], honest: int
) -> None:
    given = {"scheme": "ristretto", **options} if protocol == "oblivious_sum" else options
    assert smallest(protocol, parties, quorum, corrupt, malicious, **given) == honest


@pytest.mark.parametrize("parties", [2, *range(3, 13), 40, 64, 65, 100, 1_000])
def test_every_study_by_default_has_honest_noise_in_every_sum(parties: int) -> None:
    """For the trust that its statement names: the server may deviate. The quorum and the graph follow gamma."""
    study = RowStudy(BOOK, privacy=Privacy(epsilon=1.0), limits=Limits(min_parties=2))
    planned = Sum.make(study, names(parties))
    noise = planned.noise
    assert noise is not None
    found = registry.load("masked_sum").smallest(
        planned.setting, dishonest(parties, study.privacy.honest_fraction), malicious=True
    )
    assert 1 <= noise.honest <= found.honest
    assert remaining_epsilon(noise, found.honest) <= 1.001


@pytest.mark.parametrize(("parties", "quorum"), [(6, 4), (9, 6), (12, 8)])
def test_a_quorum_that_lets_two_sets_be_opened_is_refused(parties: int, quorum: int) -> None:
    with pytest.raises(PrivacyError, match="no honest noise"):
        Sum.make(RowStudy(BOOK, privacy=Privacy(epsilon=1.0), limits=Limits(quorum=quorum)), names(parties))


def test_a_graph_for_noise_is_planned_for_the_colluders_that_gamma_allows() -> None:
    assert Sum.make(RowStudy(BOOK), names(1_000)).setting.corrupt == 0.1
    setting = Sum.make(RowStudy(BOOK, privacy=Privacy(epsilon=1.0)), names(1_000)).setting
    assert setting.corrupt == dishonest(1_000, 2 / 3) / 1_000
    planned_for_few = dataclasses.replace(setting, corrupt=0.1)
    assert registry.load("masked_sum").smallest(planned_for_few, dishonest(1_000, 2 / 3), malicious=True).honest == 0


def test_statement_and_leak_report_say_the_same_number() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.choice(["p", "q"], 240), "c": rng.choice(["a", "b"], 240)})
    parts = {f"p{at}": frame.iloc[40 * at : 40 * at + 40] for at in range(6)}
    result = RowStudy(BOOK, privacy=Privacy(epsilon=1.0)).simulate(parts)
    assert result.report is not None
    words = "up to 2 of 6 may deviate and collude, and the party that opens the sum may "
    for text in (result.statement, " ".join(result.report.follows)):
        assert "holds at least 3 honest shares" in text
        assert words in text
        assert "computational" in text
