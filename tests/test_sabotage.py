"""Privacy-critical lines are watched: each sabotage of tests/sabotage is noticed by the tests that it names.

`make sabotage` runs all of them; here every one is held to the sources, and a tenth is run every day.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "sabotage"))

from runner import PACKAGE, ROOT, Sabotage, load, outcome

SABOTAGES = load()


def test_there_are_at_least_eighty_sabotages_over_all_packages_that_guard_data() -> None:
    assert len(SABOTAGES) >= 80
    packages = {each.file.partition("/")[0] for each in SABOTAGES}
    assert packages >= {
        "agent",
        "console",
        "crypto",
        "data",
        "disclosure",
        "dp",
        "io",
        "naive_bayes",
        "net",
        "protocols",
        "report",
    }


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda each: each.name)
def test_a_sabotage_changes_one_place_of_today_and_names_tests_of_today(sabotage: Sabotage) -> None:
    compile(sabotage.changed(), sabotage.file, "exec")
    assert sabotage.changed() != (PACKAGE / sabotage.file).read_text(encoding="utf-8")
    assert sabotage.tests
    for path in sabotage.tests:
        assert (ROOT / path).exists(), path


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda each: each.name)
def test_a_sabotage_is_noticed(sabotage: Sabotage) -> None:
    verdict, _, printed = outcome(sabotage)
    assert verdict == "killed", printed[-2000:]


def test_a_change_that_alters_nothing_survives() -> None:
    harmless = Sabotage(
        "harmless",
        "io/files.py",
        "_MAX_FILES, _MAX_BYTES = 1000,",
        "_MAX_FILES, _MAX_BYTES = 1000 + 0,",
        ("tests/cli/test_terminal.py",),
    )
    assert outcome(harmless)[0] == "survived"
