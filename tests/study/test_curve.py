"""The forecast of accuracy by epsilon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import BlindbayesError
from blindbayes.study.curve import accuracy_curve
from support.consoles import Consoles

BINNED = Codebook(
    "class", ("ill", "well"), (Categorical("colour", ("red", "blue")), Numeric("age", 0, 120, bins=4)), max_rows=9000
)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consoles]:
    with Consoles(tmp_path_factory.mktemp("office"), ("north", "south", "west")) as made:
        yield made


def test_the_forecast_rises_with_epsilon_and_reads_no_row(office: Consoles, monkeypatch: pytest.MonkeyPatch) -> None:
    home = office.office.net.sites["north"].home
    monkeypatch.setattr(type(home.tables), "open_batch", lambda *_, **__: pytest.fail("the forecast read the table"))
    wide = Codebook("class", ("ill", "well"), tuple(Categorical(f"c{n}", ("a", "b", "c")) for n in range(9)), max_rows=9000)
    curve = accuracy_curve(wide, rows=400)
    means = [line["mean"] for line in curve["lines"]]
    assert means[-1] > means[0] + 0.05  # epsilon 5 against 0.05; the coins are fixed
    assert curve["not_private"] >= means[-1] - 0.05
    with pytest.raises(BlindbayesError, match="at least 1"):
        accuracy_curve(BINNED, rows=0)
