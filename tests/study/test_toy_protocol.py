"""Adding a protocol is adding one folder with its SPEC and one line in the registry: then it runs in memory, through agents,
through the command line, and in the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from blindbayes import RowStudy
from blindbayes.cli.commands.study import command
from blindbayes.errors import ConfigError
from blindbayes.protocols import registry
from blindbayes.report import spec as report_spec
from blindbayes.study.file import Deadlines, StudyFile
from blindbayes.study.tasks import registry as tasks
from blindbayes.testing.loopback import open_policy
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")
SPEC = """# toy_sum

Everybody shows everybody its vector: a toy.

```toml
opened = ["sum"]
minimum = 2
rounds = "1"
messages = "n*(n - 1)"

[facts]
line = "everybody shows everybody its vector. Every site learns the sum. All must answer."
few_rounds = true
```
"""
CODE = '''"""A toy."""

from typing import ClassVar

import msgspec
import numpy as np

from blindbayes.errors import ConfigError
from blindbayes.protocols.core import open_value, receive_all, send_all
from blindbayes.protocols.registry import Smallest, SumProtocol, Total, require_vector
from blindbayes.wire import Message, Trust, U64Array


class ToyShown(Message, frozen=True):
    """A vector, in clear."""

    trust: ClassVar[Trust] = Trust.CLEAR
    vector: U64Array


class ToyParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of toy_sum."""

    cheer: str = "hooray"  # changes nothing


class ToySum(SumProtocol):
    name = "toy_sum"
    params = ToyParams

    def check(self, setting):
        if len(setting.contributors) > 5:
            raise ConfigError("a toy is for five")

    def smallest(self, setting, corrupt, *, malicious):
        return Smallest(len(setting.contributors) - corrupt, 0.0)

    def roster(self, setting):
        return setting.contributors

    learners = roster

    def role(self, run, setting, vector, coins):
        own = require_vector(vector, setting, run.me)
        yield from send_all(run.others, ToyShown(own))
        shown = yield from receive_all(run.others, ToyShown)
        total = own + sum((message.vector for message in shown.values()), np.zeros_like(own))
        yield from open_value(setting.label, total)
        return Total(total, setting.contributors)


PROTOCOL = ToySum()
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "library" / "toy_rooms" / "toy_sum"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    (folder / "__init__.py").write_text(CODE)
    (folder / "SPEC.md").write_text(SPEC)
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    monkeypatch.setitem(registry.ROWS, "toy_sum", "toy_rooms.toy_sum")  # the one line
    report_spec.spec_pages.cache_clear()
    yield
    report_spec.spec_pages.cache_clear()
    for name in [name for name in sys.modules if name.startswith("toy_rooms")]:
        del sys.modules[name]


@pytest.mark.usefixtures("toy")
def test_a_toy_is_a_study_a_policy_a_choice_and_a_refusal() -> None:
    assert "toy_sum" in tasks.known("rows")
    assert "toy_sum" not in open_policy().protocols  # a site allows a new protocol by name
    with pytest.raises(ConfigError, match="the option cheer is a text"):
        RowStudy(BOOK, protocol="toy_sum", options={"cheer": 3})


@pytest.mark.usefixtures("toy")
def test_a_toy_runs_in_memory_through_agents_and_in_the_report(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES, policy=open_policy(protocols=("toy_sum",), min_colluders=0)) as office:
            study = office.net.make_study(BOOK, protocol="toy_sum", deadlines=Deadlines(step=20, join=20, run=60))
            office.net.approve(study)
            runs = await office.run(study)
            assert {name: run.text() for name, run in runs.items()} == dict.fromkeys(NAMES, "done")
            sources = {name: office.net.sites[name].home.config.rows.source for name in NAMES}  # type: ignore[union-attr]
            result = study.simulate(sources)
            for run in runs.values():
                assert run.release is not None
                assert (run.release / "model.json").read_bytes() == result.files()["model.json"]
                leakage = json.loads((run.release / "leakage.json").read_text())
                assert leakage["protocols"] == ["toy_sum"]
                assert leakage["unforeseen"] == []
                assert leakage["follows"] == list(result.report.follows)
                assert "Protocol toy_sum; 3 contributors" in (run.release / "statement.md").read_text()
            assert "A vector, in clear." in result.files()["leakage.html"].decode()

    bounded(test)


@pytest.mark.usefixtures("toy")
def test_a_toy_is_written_and_checked_by_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office(tmp_path, NAMES)
    cards = [str(site.home.folder / "card.toml") for site in office.net.sites.values()]
    BOOK.to_toml(tmp_path / "codebook.toml")
    monkeypatch.chdir(tmp_path)
    given = ["--title", "toy", "--codebook", "codebook.toml", "--protocol", "toy_sum", "--cheer", "well done"]
    done = CliRunner().invoke(command, ["init", "study.toml", *given, *(word for card in cards for word in ("--card", card))])
    assert done.exit_code == 0, done.output
    assert StudyFile.from_toml("study.toml").study.options == {"cheer": "well done"}
    shown = CliRunner().invoke(command, ["check", "study.toml", "--json"])
    assert shown.exit_code == 0, shown.output
    facts = json.loads(shown.output)
    assert (facts["protocol"], facts["opened"], facts["learners"]) == ("toy_sum", ["sum"], list(NAMES))
