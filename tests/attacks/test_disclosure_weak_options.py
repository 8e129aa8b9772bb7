"""A study that is weaker than it looks: options that let few colluders read a site are shown to people, and refused by default.

Before, a study of six sites with `neighbours = 2` passed the default policy, and neither `study check` nor `study dry-run` nor
the approval said a word of it: each vector then hides behind two parties. masked_sum has no such option; chain_sum has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blindbayes import RowStudy
from blindbayes.agent.approvals.summary import approval_of, colluders_of, require_study
from blindbayes.cli.commands.site import command as site_command
from blindbayes.cli.commands.study import command as study_command
from blindbayes.datasets import hospitals
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.study.file import Limits, Party, Privacy, StudyFile
from blindbayes.testing.loopback import Loopback, make_study_file, open_policy
from support.sites import paper_policy

BOOK = hospitals(60).codebook
WEAK = {"neighbours": 2}


def study(
    options: dict[str, Any] | None = None,
    sites: int = 6,
    protocol: str = "masked_sum",
    quorum: int | None = None,
    min_cell: int = 0,
    **fields: Any,
) -> StudyFile:
    parties = tuple(Party(f"site{number}", f"{number:064x}") for number in range(1, sites + 1))
    hosts = {"server": "site1"}
    if protocol != "masked_sum":
        hosts = StudyFile.make(RowStudy(BOOK, protocol=protocol, options=options or {}), "x", parties).hosts
    return make_study_file(
        BOOK, title="weak", parties=parties, protocol=protocol, hosts=hosts, options=options or {},
        limits=Limits(quorum=quorum, min_cell=min_cell), **fields,
    )  # fmt: skip


def test_the_study_of_the_review_is_refused_and_the_refusal_names_the_option() -> None:
    with pytest.raises(PrivacyError, match=r"bears 0 colluding sites.*options\.neighbours"):
        require_study(paper_policy(), study(WEAK, protocol="chain_sum"))


def test_masked_sum_has_no_option_that_weakens_it() -> None:
    for name in ("neighbours", "corrupt", "malicious_server"):
        with pytest.raises(ConfigError, match=f"unknown protocol option '{name}'"):
            study({name: 0})


def test_a_site_may_lower_the_floor_knowingly_and_then_allows_it() -> None:
    weak = study(WEAK, protocol="chain_sum")
    require_study(paper_policy(min_colluders=0, weaker_options=True), weak)
    with pytest.raises(PrivacyError, match="weaker_options in the policy"):
        require_study(paper_policy(min_colluders=0), weak)


def test_a_quorum_so_low_that_the_servers_host_could_read_a_site_is_refused() -> None:
    assert colluders_of(study(sites=9, quorum=5)) == 0
    with pytest.raises(PrivacyError, match=r"limits\.quorum = 5"):
        require_study(open_policy(), study(sites=9, quorum=5))
    require_study(open_policy(), study(sites=9))


@pytest.mark.parametrize("protocol", ["masked_sum", "ring_sum", "chain_sum", "oblivious_sum"])
@pytest.mark.parametrize("sites", [3, 4, 5, 6, 7, 12])
def test_every_protocol_passes_with_its_own_options(protocol: str, sites: int) -> None:
    require_study(paper_policy(), study(sites=sites, protocol=protocol))


def test_a_floor_of_two_asks_for_more_sites() -> None:
    with pytest.raises(PrivacyError, match="asks for 2"):
        require_study(open_policy(min_colluders=2), study(sites=4))
    require_study(open_policy(min_colluders=2), study(sites=5))


def test_the_dealer_is_named_as_one_who_reads_all_with_the_miner() -> None:
    asked = approval_of(study({"scheme": "joye_libert"}, sites=5, protocol="oblivious_sum"))
    assert asked.colluders == 1
    assert any("The dealer is not among them" in line for line in asked.sentences)
    free = approval_of(study(sites=5, protocol="oblivious_sum"))
    assert free.colluders == 4
    assert not any("dealer" in line for line in free.sentences)


def test_the_promise_is_told_whole() -> None:
    privacy = Privacy(epsilon=2.0, delta=1e-6, honest_fraction=0.5, unit="party", party_rows=100)
    private = study(privacy=privacy)
    told, hidden = (approval_of(each).promise for each in (private, study(privacy=privacy, min_cell=5)))
    for promise in (told, hidden):
        assert (promise["epsilon"], promise["delta"]) == (2.0, 1e-6)
        assert "at most 100" in promise["unit"]
    assert "whole at every party" in told["mechanism"]
    assert "no other site is relied on" in told["honest_fraction"]
    assert "two-sided geometric" in hidden["mechanism"] or "Skellam" in hidden["mechanism"]
    assert "0.5" in hidden["honest_fraction"]
    changed = {each.name for each in approval_of(private).changed}
    assert changed == {f"privacy.{name}" for name in ("epsilon", "delta", "honest_fraction", "unit", "party_rows")}


def test_a_plain_study_changes_nothing() -> None:
    assert approval_of(study()).changed == ()


@pytest.fixture
def weak_file(tmp_path: Path) -> tuple[Loopback, Path]:
    net = Loopback(tmp_path / "sites", {f"site{number}": "rows.csv" for number in range(1, 7)})
    made = net.make_study(BOOK, title="weak", protocol="chain_sum", options=WEAK)
    path = tmp_path / "study.toml"
    path.write_text(made.to_toml(), encoding="utf-8")
    (net.sites["site1"].home.folder / "rows.csv").write_text(_csv(), encoding="utf-8")
    return net, path


def _csv() -> str:
    import io

    import pyarrow.csv as pa_csv

    sink = io.BytesIO()
    pa_csv.write_csv(next(iter(hospitals(90).tables.values())), sink)
    return sink.getvalue().decode()


def test_check_dry_run_and_approval_print_each_weakening_and_what_it_costs(weak_file: tuple[Loopback, Path]) -> None:
    net, path = weak_file
    folder = str(net.sites["site1"].home.folder)
    for command, arguments in (
        (study_command, ["check", str(path)]),
        (study_command, ["dry-run", str(path), "--config", folder]),
        (site_command, ["approve", str(path), "--config", folder]),
    ):
        result = CliRunner().invoke(command, arguments)
        text = " ".join(result.output.split())
        assert "options.neighbours = 2" in text, (arguments, result.exception, text)
        assert "Nothing is claimed against parties that deviate" in text
        assert "noise: none" in text
    assert isinstance(result.exception, PrivacyError)
    facts = json.loads(CliRunner().invoke(study_command, ["check", str(path), "--json"]).output)
    assert facts["approval"]["colluders"] == 0
    assert {each["name"] for each in facts["approval"]["changed"]} >= {f"options.{name}" for name in WEAK}
