"""A site with changed software that only chooses run ids; and rows that are taken back and brought again.

Whoever proposes a run chooses its id, and an id says what a run goes on from. It once bought any number of noisy releases for
the price of one, and had one run's statistics subtracted in another's place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes.agent.runs.context import FolderSite, Work
from blindbayes.agent.runs.folders import read_run_id
from blindbayes.agent.store.increments import IncrementStore
from blindbayes.cli.commands.site import command
from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data import count_table
from blindbayes.disclosure.charges import max_moved
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.statistics import Statistics
from blindbayes.study.file import Deadlines, Limits, Privacy, StudyFile
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.tasks.sum_plan import Sum
from blindbayes.study.tasks.sums import SumTask
from blindbayes.study.tasks.traits import ModelForm, Support
from support import noisy_columns
from support.consortium import EVERYBODY, Consortium, done, office
from support.sites import BOOK, Office, bounded, paper_policy

DIGITS = "0123456789abcdef"


def fresh(digits: int = 32) -> str:
    return Coins.system().bytes(digits // 2).hex()


class Changed(FolderSite):
    """A site that asks nothing of its own log or folder."""

    def removed(self, codebook: Any, *, total: bool) -> None:
        return None

    def earlier(self, codebook: Any) -> tuple[Any, bool]:
        return None, False


async def chosen(here: Office, by: str, study: StudyFile, run_id: str, kind: type[FolderSite] = FolderSite) -> dict[str, Any]:
    """What changed software does: it proposes a run with an id of its choice, and looks at nothing itself."""
    agent = here.agents[by]
    site = kind(agent.home, agent.identity, study)
    site.run_id, site.base = run_id, run_id[:32] if len(run_id) == 64 else None
    run = agent.launch(run_id, Work(study, site, study.task.at(site, run_id), run_id), by)
    await run.done.wait()
    return await here.ended(run_id)


def people(home: Any, *words: str) -> Any:
    return CliRunner().invoke(command, [*words, "--config", str(home.folder)])


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """By study: how much of south's table each of its vectors told, before noise."""
    found: dict[str, list[int]] = {}
    real = Sum.contribution

    def contribution(self: Sum, statistics: Any, coins: Any, removed: Any = None, name: Any = None) -> Any:
        if name == "south":
            changed = statistics if removed is None else statistics - removed
            fraction = str(self.study.privacy.honest_fraction)
            found.setdefault(fraction, []).append(int(np.abs(self.plan.vector(changed)).sum()))
        return real(self, statistics, coins, removed, name)

    monkeypatch.setattr(Sum, "contribution", contribution)
    return found


THREE = ("north", "south", "west")


@pytest.mark.parametrize("protocol", ["noisy_histograms", "opened_ratio"])
def test_every_noisy_release_is_paid_for_whatever_its_run_is_called(tmp_path: Path, protocol: str) -> None:
    """Both tell everything each time: an id that says "with a base" is none of theirs."""

    async def test() -> None:
        columns = protocol == "noisy_histograms"
        async with noisy_columns.office_of(tmp_path) if columns else Office(tmp_path, THREE, policy=paper_policy()) as here:
            by, other = ("office", "hospital") if columns else ("north", "south")
            if columns:
                study = noisy_columns.study_of(here)
            else:
                noisy: dict[str, Any] = {"privacy": Privacy(epsilon=1.0), "options": {"opening": "noisy"}}
                study = here.net.make_study(BOOK, protocol=protocol, hosts={}, deadlines=Deadlines(60, 60, 120), **noisy)
            here.net.approve(study, runs=20)
            first = (await chosen(here, by, study, last := fresh()))[other]
            assert first.state == "done"
            ledger = here.net.sites[other].home.ledger
            price, releases = ledger.balance().spent_epsilon, 1
            for _ in range(3):
                last = last[-32:] + fresh()
                runs = await chosen(here, by, study, last)
                releases += other in runs and runs[other].state == "done"
            assert ledger.balance().spent_epsilon == price * releases
            assert releases == 1

    bounded(test, 120)


def test_a_run_of_another_study_takes_no_runs_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2's run is called as a run of S1; then S1's sum of changes was the table of the one site that had left S2."""
    opened: list[Any] = []
    real = SumTask.store

    def store(self: SumTask, outputs: Any) -> None:
        opened.extend(np.array(total.words) for total in outputs.values() if total is not None)
        real(self, outputs)

    monkeypatch.setattr(SumTask, "store", store)

    async def test() -> None:
        names = EVERYBODY[:4]
        async with office(tmp_path, names, paper_policy()) as here:
            s1 = Consortium(here, names, privacy=Privacy(), limits=Limits(), title="exact")
            s2 = Consortium(here, names, privacy=Privacy(epsilon=1.0), title="noisy")
            x, z = done(await s1.run()), done(await s2.run())
            files = {path: path.read_bytes() for path in (s1.home("south").folder / "increments").iterdir()}
            assert people(s2.home("south"), "withdraw", s2.study.sha256).exit_code == 0
            await chosen(here, "north", s2.study, z + x)
            await chosen(here, "north", s1.study, x + fresh())
            book = s1.study.agreement.task.counting
            table = count_table(s1.home("south").config.rows.source, book, lenient=True).words
            assert not (opened[-1] == table).all()
            assert not opened[-1].any()  # nothing had changed
            assert {path: path.read_bytes() for path in files} == files  # sealed once, under a nonce of its own

    bounded(test, 90)


def test_no_second_run_of_a_name_begins_in_a_study(tmp_path: Path) -> None:
    async def test() -> None:
        async with office(tmp_path, EVERYBODY[:3]) as here:
            club = Consortium(here, EVERYBODY[:3], privacy=Privacy(epsilon=1.0))
            first = done(await club.run())
            second = done(await club.run(base=first))
            spent = club.spent("west")
            for wrong in ("1" * 32 + second[-32:], first + first, second[-33:], "0" * 16, second[-32:] + "0" * 31):
                runs = await chosen(here, "south", club.study, wrong, Changed)
                assert set(runs) == {"south"}, wrong
                assert runs["south"].state == "failed"
            assert club.spent("west") == spent

    bounded(test, 90)


def test_two_studies_cannot_make_each_others_changes_whole_tables(tmp_path: Path, moved: dict[str, list[int]]) -> None:
    async def test() -> None:
        names = EVERYBODY[:3]
        async with office(tmp_path, names) as here:
            s1 = Consortium(here, names, privacy=Privacy(epsilon=1.0), title="one")
            s2 = Consortium(here, names, privacy=Privacy(epsilon=1.0, honest_fraction=0.9), title="two")
            x, z = done(await s1.run()), done(await s2.run())
            people(s2.home("south"), "withdraw", s2.study.sha256)
            await chosen(here, "north", s2.study, z := z + x)
            for _ in range(4):
                await chosen(here, "north", s1.study, x := x[-32:] + fresh())
                await chosen(here, "north", s2.study, z := z[-32:] + fresh())  # a step of its own: the two ids must differ
                await chosen(here, "north", s2.study, z := z[-32:] + x[-32:])  # once took the place of the run of S1
            told = moved[str(s1.study.privacy.honest_fraction)]
            assert sum(map(bool, told)) <= s1.spent("south")

    bounded(test, 90)


def test_rows_that_come_and_go_pay_each_time(tmp_path: Path, moved: dict[str, list[int]]) -> None:
    """`site withdraw` and `--undo` move every record of a site: nobody deviates, and the ledger was charged twice in all."""

    async def test() -> None:
        async with office(tmp_path, EVERYBODY[:3]) as here:
            club = Consortium(here, EVERYBODY[:3])
            last = done(await club.run())
            for step in range(4):
                told = people(club.home("south"), "withdraw", club.study.sha256, *(["--undo"] if step % 2 else []))
                assert told.exit_code == 0, told.output
                last = done(await club.run(base=last))
            (releases,) = moved.values()
            assert all(releases)
            assert club.spent("south") == len(releases) == 5
            assert club.spent("west") == 2  # its rows stood still
            paid = [entry for entry in club.home("west").ledger.entries() if entry.kind == "charge"]
            assert paid[-1].fields["purpose"].endswith("for one stay of a record")

    bounded(test, 90)


def test_rows_over_columns_are_not_taken_back_but_the_study_is_revoked(tmp_path: Path) -> None:
    async def test() -> None:
        async with noisy_columns.office_of(tmp_path) as here:
            study = noisy_columns.study_of(here)
            here.net.approve(study, runs=5)
            hospital = here.net.sites["hospital"].home
            told = people(hospital, "withdraw", study.sha256)
            assert told.exit_code != 0
            assert "revoke" in str(told.exception)
            hospital.audit.append("withdrew", study=study.sha256)  # as an older version said it
            runs = await here.run(study, by="office")
            assert runs["office"].state == "failed"
            assert "hospital" not in runs
            assert hospital.ledger.balance().spent_epsilon == 0
            assert people(hospital, "withdraw", study.sha256, "--undo").exit_code == 0
            assert (await here.run(study, by="office"))["office"].state == "done"

    bounded(test, 60)


def test_what_is_kept_must_be_what_the_log_says(tmp_path: Path) -> None:
    """A file in increments/ that is another run's, or of an older form, is not subtracted."""

    async def test() -> None:
        async with office(tmp_path, EVERYBODY[:3]) as here:
            club = Consortium(here, EVERYBODY[:3], privacy=Privacy(epsilon=1.0))
            first = done(await club.run())
            home, key = club.home("south"), here.net.sites["south"].identity.storage_key
            book, sha256 = club.study.agreement.task.counting, club.study.sha256
            path = home.folder / "increments" / f"{sha256}.{first}.counted"
            kept = path.read_bytes()
            path.unlink()
            home.increments.keep_counted(key, sha256, first, Statistics.zero(book))
            runs = await club.run(base=first)
            assert "audit log" in str(runs["south"].error)
            path.rename(path.with_name(f"{first}.counted"))
            runs = await club.run(base=first)
            assert "without a base" in str(runs["south"].error)
            path.write_bytes(kept)
            path.chmod(0o600)
            assert (await club.run(base=first))["south"].error is None

    bounded(test, 90)


# -- properties -------------------------------------------------------------------------------------------------------------


class Plain(SumTask):
    supports = frozenset()


class Shares(Plain):
    model = ModelForm.SHARED


class Increments(Plain):
    supports = frozenset({Support.INCREMENTS})


IDS = st.one_of(
    st.text(DIGITS + "gA/.", min_size=0, max_size=70), *(st.text(DIGITS, min_size=n, max_size=n) for n in (32, 54, 64))
)


def accepted(run_id: str, task: type[SumTask]) -> bool:
    try:
        found = read_run_id(run_id, task)
    except ConfigError:
        return False
    assert found.base is None or Support.INCREMENTS in task.supports
    assert len(found.name) == 32
    assert run_id == (found.base or "") + found.name or task.model is ModelForm.SHARED
    return True


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a" * 64, "b" * 64]), IDS), min_size=2, max_size=2, unique=True))
def test_no_two_ids_that_are_accepted_share_a_file_in_any_study(tmp_path_factory: pytest.TempPathFactory, pair: Any) -> None:
    increments, key = IncrementStore(tmp_path_factory.mktemp("increments")), bytes(32)
    book = Codebook("class", ("a", "b"), (Categorical("x", ("y", "z")),), max_rows=10)
    told = [(study, run_id) for study, run_id in pair if accepted(run_id, Increments)]
    for at, (study, run_id) in enumerate(told):
        words = Statistics.zero(book).words + np.uint64(at)
        increments.keep_counted(key, study, run_id, Statistics.from_words(Statistics.zero(book).layout, words))
    assert len(list(increments.folder.glob("*"))) == len(told)
    for at, (study, run_id) in enumerate(told):
        assert (increments.counted(key, study, run_id, book).words == at).all()
        with pytest.raises(LocalProtocolError):
            increments.keep_counted(
                key, study, run_id, Statistics.from_words(Statistics.zero(book).layout, words + np.uint64(1))
            )


@given(IDS)
def test_an_id_says_with_a_base_only_where_the_scheme_goes_on(run_id: str) -> None:
    for task in (Plain, Shares, Increments):
        accepted(run_id, task)


def test_no_scheme_reads_an_id_in_two_ways() -> None:
    for name in tasks.names():
        task = tasks.task_class(name)
        assert not (Support.INCREMENTS in task.supports and task.model is ModelForm.SHARED)


@settings(deadline=None)
@given(st.data())
def test_what_a_stay_can_move_is_what_counting_says(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 7))
    since = [data.draw(st.one_of(st.none(), st.integers(0, i - 1))) if i else None for i in range(count)]
    gone = [data.draw(st.booleans()) for _ in range(count)]

    def there(at: int | None, a: int, b: int) -> bool:
        return at is not None and a <= at < b and not gone[at]

    stays = [(a, b) for a in range(count) for b in range(a + 1, count + 1)]
    most = max((sum(there(i, *stay) != there(at, *stay) for i, at in enumerate(since)) for stay in stays), default=0)
    assert max_moved(since, gone) == most
