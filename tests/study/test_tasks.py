"""Tasks: public facts without a site, one party's input at a site, and a disclosure that runs keep."""

from __future__ import annotations

from typing import Any

import pytest

from agent.test_parity import BINNED, NAMES, WIDE, by_columns, by_rows
from blindbayes import ColumnStudy, Privacy, RowStudy
from blindbayes.disclosure.value import SumForm
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.study.agreement import Agreement
from blindbayes.study.simulation.site import MemorySite
from blindbayes.study.study import Study
from blindbayes.study.tasks import registry

ROWS = {"exact": RowStudy(BINNED), "noisy": RowStudy(BINNED, privacy=Privacy(epsilon=1.0))}


def agreed(study: Study, tables: dict[str, Any]) -> Agreement:
    return study.task_class.agree_locally(study, {name: MemorySite(name, table) for name, table in tables.items()})


@pytest.mark.parametrize("name", ["masked_sum", "private_ratio"])
def test_a_task_that_is_at_no_site_reads_nothing(name: str) -> None:
    task = agreed(RowStudy(BINNED, protocol=name), by_rows()).task
    assert task.roles[:3] == NAMES
    with pytest.raises(LocalProtocolError, match="run at a site"):
        task.read()


def test_tasks_of_two_sites_share_public_facts_and_no_input() -> None:
    tables = by_rows()
    task = agreed(ROWS["exact"], tables).task
    north, south = (task.at(MemorySite(name, tables[name]), "ab" * 16) for name in ("north", "south"))
    north.read()
    assert north.digest("north")
    assert not south.digest("south")
    assert not task.run_id
    assert north.setting is south.setting is task.setting


@pytest.mark.parametrize("kind", ROWS)
def test_a_sum_opens_what_its_disclosure_states_to_those_it_names(kind: str) -> None:
    study, tables = ROWS[kind], by_rows()
    disclosure = agreed(study, tables).task.disclosure
    leakage = study.simulate(tables).leakage
    assert disclosure.row_sum is not None
    assert disclosure.row_sum.form is SumForm(kind)
    assert disclosure.epsilon == (study.privacy.epsilon or 0.0)
    assert {name for name, leak in leakage.items() if leak.opened} == set(disclosure.learners)
    assert {label for leak in leakage.values() for label in leak.opened} == set(disclosure.opened)


@pytest.mark.parametrize("audit_rate", [0.0, 0.2])
def test_training_over_columns_opens_something_only_if_its_disclosure_says_so(audit_rate: float) -> None:
    study, tables = ColumnStudy(WIDE, options={"queries": 100, "audit_rate": audit_rate}), by_columns()
    disclosure = agreed(study, tables).task.disclosure
    opened = {label for leak in study.simulate(tables).leakage.values() for label in leak.opened}
    assert bool(opened) == bool(disclosure.outputs) == bool(audit_rate)
    assert disclosure.opened == tuple(output.name for output in disclosure.outputs) or disclosure.opened == ("nothing",)
    assert disclosure.answers is not None
    assert (disclosure.answers.queries, disclosure.answers.audit_rate) == (100, audit_rate)


def test_a_study_that_opens_its_model_takes_no_prediction() -> None:
    tables = by_rows()
    request: Any = None
    with pytest.raises(ConfigError, match="no model in shares"):
        agreed(ROWS["exact"], tables).task.prediction(MemorySite("north"), "ab" * 16, request)


@pytest.mark.parametrize("name", registry.names())
def test_every_protocol_describes_itself(name: str) -> None:
    task = registry.task_class(name)
    assert task.name == name
    assert task.partitions
    assert task.description.endswith(".")
