"""Releases that agents write, of every kind of run: what all signed verifies, with the pins of any of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from blindbayes.agent.approvals.summary import learners_of
from blindbayes.agent.runs.release import check_release
from blindbayes.io.files import read_folder
from blindbayes.report.manifest import COMMON_SIGNATURES, add_signature
from blindbayes.report.verification import Verification
from blindbayes.study.file import Deadlines, Privacy, StudyFile
from support.column_sites import pair, predict, trained
from support.sites import BOOK, Office, bounded, paper_policy

NAMES = ("north", "south", "west")
QUICK = Deadlines(step=5, join=5, run=30)


def releases(office: Office, run: str) -> dict[str, dict[str, bytes]]:
    return {name: read_folder(site.home.folder / "releases" / run) for name, site in office.net.sites.items()}


def signed(office: Office, study: StudyFile, folders: Mapping[str, dict[str, bytes]], maker: str) -> Verification:
    """The maker's folder, signed by everybody who learned the result, as a reader with all cards sees it."""
    learners, files = learners_of(study), folders[maker]
    for name in learners if COMMON_SIGNATURES in files else ():
        files = {**files, COMMON_SIGNATURES: add_signature(files, folders[name], name, office.net.sites[name].identity.signing)}
    keys = {name: site.identity.card.identity for name, site in office.net.sites.items()}
    return check_release(files, keys)[1]


@pytest.mark.parametrize("epsilon", [None, 4.0])
@pytest.mark.parametrize(
    ("protocol", "options"),
    [("masked_sum", {}), ("masked_sum", {"publish": False}), ("ring_sum", {}), ("chain_sum", {}), ("oblivious_sum", {})],
)
def test_a_sum_is_signed_by_all_who_learned_it_and_all_who_took_part_sign_receipts(
    tmp_path: Path, protocol: str, options: dict[str, Any], epsilon: float | None
) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES, policy=paper_policy()) as office:
            privacy = Privacy(epsilon=epsilon)
            study = office.net.make_study(BOOK, deadlines=QUICK, protocol=protocol, options=options, privacy=privacy)
            office.net.approve(study)
            runs = await office.run(study)
            assert {run.state for run in runs.values()} == {"done"}
            folders = releases(office, next(iter(runs.values())).run_id)
            learners = learners_of(study)
            assert {name for name, files in folders.items() if "model.json" in files} == set(learners)
            for maker in NAMES:
                found = signed(office, study, folders, maker)
                assert (found.missing, found.alone) == ((), () if maker in learners else (maker,))
                assert found.files["leakage.json"] == (maker,)
                assert (found.no_receipt, found.left_out) == ((), ())
                if maker in learners:
                    assert set(found.receipts) == set(NAMES)
                    assert set(found.files["model.json"]) == set(found.files["claims.json"]) == set(learners)

    bounded(test)


@pytest.mark.parametrize("aligned", [True])
def test_training_and_classes_over_columns_verify_too(tmp_path: Path, aligned: bool) -> None:
    async def test() -> None:
        split: Any = pair()
        async with trained(tmp_path, split, deadlines=QUICK) as (office, study, model):
            folders = releases(office, model)
            for maker in study.names:
                found = signed(office, study, folders, maker)
                assert (found.missing, set(found.files["claims.json"])) == ((), set(study.names))
                assert (set(found.receipts), found.no_receipt) == (set(study.names), ())
            asked = split.ask(tmp_path, split.frame[:20])
            ended = await predict(office, study, model, asked)
            run = next(iter(ended.values())).run_id
            for maker, files in releases(office, run).items():
                keys = {name: site.identity.card.identity for name, site in office.net.sites.items()}
                _, found = check_release(files, keys)
                assert found.makers == found.alone == (maker,)
                assert found.missing == ()  # each site's classes are its own
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr("blindbayes.agent.runs.release.classifies", lambda study: False)
                    assert check_release(files, keys)[1].missing == study.names  # by the study, not by run.json

    bounded(test)
