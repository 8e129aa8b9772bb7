"""The leak report says which run it was, who was there, and of two parties what each learns, side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, ColumnStudy, Privacy, RowStudy
from blindbayes.datasets import hospitals
from blindbayes.protocols.secure_sum.messages import MaskedVectorSent, TotalPublished
from blindbayes.report.leakage import About, leak_report
from blindbayes.report.page import leak_page
from blindbayes.wire.transcript import Amount, Way

ABOUT = About("readmission", "ab" * 32, "cd" * 16, "2026-11-15", ("north", "south"), {}, {"server": "south"})
TRAFFIC: Mapping[Way, Amount] = {
    ("north", "server", MaskedVectorSent): (1, 400),
    ("server", "north", TotalPublished): (2, 300),
}


def cards(page: str) -> list[str]:
    return re.findall(r'<div class="card">(.*?)</div>', page, flags=re.DOTALL)


def test_a_sites_report_names_study_run_date_and_parties() -> None:
    report = leak_report(("masked_sum",), 2, {"north": {TotalPublished: 2}}, {"north": ("sum",)}, (), (), TRAFFIC, ABOUT)
    page = leak_page(report)
    for word in ("readmission", "ab" * 32, "cd" * 16, "2026-11-15", "north, south"):
        assert word in page
        assert word in report.to_dict()["about"].values()
    assert "other parties" not in page
    assert re.search(r"<text [^>]*>server</text>", page)
    assert "TotalPublished (2, 300 bytes)" in page
    assert "As seen by one site" in page


def test_of_two_each_has_a_column_and_the_others_is_what_it_was_sent() -> None:
    report = leak_report(("masked_sum",), 2, {"north": {TotalPublished: 2}}, {"north": ("sum",)}, (), (), TRAFFIC, ABOUT)
    page = leak_page(report)
    assert '<div class="two">' in page
    own, other = cards(page)
    assert "What north learns" in own
    assert "the exact sum" in own
    assert "What server (run by south) learns" in other
    assert "It was sent 1 masked message" in other
    assert "Its own release" in other
    assert set(report.to_dict()["parties"]) == {"north"}  # the other's own release speaks for it


def test_of_three_nothing_is_said_of_what_others_received() -> None:
    more = {**TRAFFIC, ("west", "server", MaskedVectorSent): (1, 400)}
    report = leak_report(("masked_sum",), 3, {"north": {TotalPublished: 2}}, {"north": ("sum",)}, (), (), more, ABOUT)
    assert [view.party for view in report.views] == ["north"]


def test_two_companies_and_their_columns_stand_side_by_side() -> None:
    book = Codebook(
        "late",
        ("no", "yes"),
        (Categorical("plan", ("a", "b")), Categorical("job", ("x", "y"))),
        max_rows=100,
        variance_floor=1.0,
    )
    bank = pa.table({"job": ["x", "y", "x", "y"], "late": ["no", "yes", "no", "yes"]})
    telecom = pa.table({"plan": ["a", "b", "a", "a"]})
    study = ColumnStudy(book)
    report = study.simulate({"bank": bank, "telecom": telecom}).report
    page = leak_page(report)
    first, second = cards(page)
    assert "What bank learns" in first
    assert "It holds the columns job, late." in first
    assert "What telecom learns" in second
    assert "It holds the columns plan." in second
    assert "Nothing was opened to it." in second
    assert study.sha256 in page
    counted = json.loads(json.dumps(report.to_dict()))["parties"]
    for card, party in ((first, "bank"), (second, "telecom")):
        shares = sum(number for trust, number in counted[party]["received"].values() if trust == "share")
        assert not shares or f"It received {shares} share message" in card


@pytest.mark.parametrize(("epsilon", "held"), [(None, "clear"), (1.0, "noisy")])
def test_a_total_with_noise_is_noisy_wherever_it_travels(epsilon: float | None, held: str) -> None:
    data = hospitals(rows=300)
    report = RowStudy(data.codebook, privacy=Privacy(epsilon=epsilon)).simulate(data.tables).report
    assert {flow.trust for flow in report.flows if flow.kind == "TotalPublished"} == {held}
    for view in report.views:
        assert {item.trust for item in view.received if item.kind == "TotalPublished"} <= {held}
