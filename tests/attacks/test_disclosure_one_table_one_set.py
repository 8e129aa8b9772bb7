"""Exact sums over time, between agents: what three published sums, a renamed codebook or a lost disk gave away before.

The rule before compared each new sum with the site's own earlier ones; see `disclosure/SPEC.md` for why no such rule is enough.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from blindbayes import RowStudy
from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.rollback import PeerLogHeads
from blindbayes.agent.runs.context import contribution, request_of
from blindbayes.agent.store.backup import acknowledge, backup, restore
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.store.tables import Tables
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.disclosure.checks import KNOWN_SET, require_all
from blindbayes.disclosure.history import History
from blindbayes.disclosure.one_set import Binding
from blindbayes.disclosure.policy import Policy
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.distributed.noisy_sum import WHOLE_SITE
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.naive_bayes.load import load
from blindbayes.study.fields import Estimation
from blindbayes.study.file import Deadlines, Limits, Privacy, StudyFile
from blindbayes.study.roster import Party
from blindbayes.study.tasks.task import State
from blindbayes.testing.loopback import make_study_file, open_policy
from support.hub import MemoryHub
from support.sites import BOOK, Gate, Office, bounded

pytestmark = pytest.mark.usefixtures("light_backups")

PHRASE = "correct horse battery"


def study_of(
    office: Office, names: Sequence[str], title: str, book: Codebook = BOOK, *, quorum: int | None = 0, **fields: Any
) -> StudyFile:
    """A study of some sites, with a quorum of all; None: the quorum that a study has by itself."""
    cards = [(name, office.net.sites[name].identity.card) for name in names]
    parties = tuple(Party(name, card.identity.hex(), True, card.key) for name, card in cards)
    quorum = len(names) if quorum == 0 else quorum
    hosts = StudyFile.make(RowStudy(book, limits=Limits(quorum=quorum)), title, parties).hosts
    made = {"title": title, "parties": parties, "codebook": book, "hosts": hosts}
    given = {"limits": Limits(quorum=quorum), "deadlines": Deadlines(step=30, join=30, run=60)}
    return make_study_file(**{**made, **given, **fields})


async def run(office: Office, study: StudyFile) -> np.ndarray | None:
    """The words of the sum that a study opens; None: somebody refused."""
    for name in study.names:
        office.net.sites[name].home.decisions.approve(study, runs=1)
    begun = office.agents[study.names[0]].begin(study.sha256)
    await begun.done.wait()
    ended = await office.ended(begun.run_id)
    if any(each.state != "done" for each in ended.values()):
        return None
    model = load(office.net.sites[study.names[0]].home.folder / "releases" / begun.run_id / "model.json")
    return model.statistics_.words.astype(np.int64)


def refusals(office: Office) -> str:
    logs = (site.home.history.entries() for site in office.net.sites.values())
    return "\n".join(str(entry.get("why")) for log in logs for entry in log)


REGIONS = {"a": ("a1", "a2", "a3"), "b": ("b1", "b2", "b3")}


@pytest.mark.parametrize("quorum", [0, None], ids=["quorum of all", "usual quorum"])
def test_three_published_sums_do_not_open_a_sites_table(tmp_path: Path, quorum: int | None) -> None:
    """A nation, then each of its regions: S1 - S2 - S3 was the table of v, by default, with nobody deviating."""

    async def test() -> None:
        nation = ("v", *REGIONS["a"], *REGIONS["b"])
        async with Office(tmp_path, nation, policy=open_policy()) as office:
            assert await run(office, study_of(office, nation, "S1", quorum=quorum)) is not None
            for names in REGIONS.values():
                assert await run(office, study_of(office, names, f"S {names}", quorum=quorum)) is None
            assert "takes part in exact sums over a1, a2, a3, b1, b2, b3, v only" in refusals(office)
            noisy = study_of(office, REGIONS["a"], "noisy", privacy=Privacy(epsilon=1.0))
            assert await run(office, noisy) is not None  # noise over any set; what it hides is said
            model = office.net.sites["a1"].home.folder / "releases"
            statements = [path.read_text() for path in model.rglob("statement.md")]
            assert [WHOLE_SITE in " ".join(text.split()) for text in statements if "epsilon = 1" in text] == [True]
            assert await run(office, study_of(office, nation, "again")) is not None

    bounded(test, 90)


def test_a_site_that_was_lost_is_in_no_later_sum_of_the_others(tmp_path: Path) -> None:
    """Quorum 3 of 4, and east is lost: the sum over the others, then one over all, would show east's table."""

    async def test() -> None:
        hub, names = MemoryHub(), ("north", "south", "west", "east")
        async with Office(tmp_path, names, hub=hub, policy=open_policy()) as office:
            hub.alter = Gate("east", 2)  # keys and shares leave, the masked vector does not
            limits = Deadlines(step=3, join=10, run=30)
            first = study_of(office, names, "first", quorum=3, deadlines=limits)
            office.net.approve(first)
            assert {name for name, each in (await office.run(first)).items() if each.state == "done"} == set(names[:3])
            hub.alter = None
            await office.stop("east")
            await office.start("east")
            for quorum in (0, 3):
                assert await run(office, study_of(office, names, f"quorum {quorum}", quorum=quorum)) is None
            assert "over north, south, west only" in refusals(office)
            assert await run(office, study_of(office, names[:3], "the survivors")) is not None

    bounded(test, 90)


def test_regions_first_and_then_the_nation_do_not_open_a_site_either(tmp_path: Path) -> None:
    async def test() -> None:
        names = ("v", "a1", "a2", "a3", "b1", "b2", "b3", "b4")
        async with Office(tmp_path, names, policy=open_policy(changed_data=True)) as office:
            assert await run(office, study_of(office, names[4:], "b")) is not None
            assert await run(office, study_of(office, names[1:4], "a")) is not None
            assert await run(office, study_of(office, names, "all", quorum=None)) is None
            home = office.net.sites["v"].home
            assert home.history.exact_sums() == []  # whose rows were in no sum is bound to nothing

    bounded(test, 90)


YEARS = Codebook("class", ("ill", "well"), (Categorical("sex", ("m", "f")), Numeric("age", 0, 120)), max_rows=1000)
MONTHS = Codebook("outcome", ("1", "0"), (Categorical("gender", ("male", "female")), Numeric("months", 0, 1440)), max_rows=999)
MAP = {
    "class": "cls", "sex": "sex", "age": "age",
    "outcome": {"from": "cls", "values": {"ill": "1", "well": "0"}},
    "gender": {"from": "sex", "values": {"m": "male", "f": "female"}},
    "months": "age * 12",
}  # fmt: skip


def mapped_office(folder: Path, names: str, policy: Policy) -> Office:
    """Sites with text files of their own columns, mapped to whichever codebook asks."""
    for seed, name in enumerate(names):
        rng = np.random.default_rng(seed)
        lines = [f"{('ill', 'well')[rng.integers(2)]},{'mf'[rng.integers(2)]},{rng.integers(121)}" for _ in range(40)]
        (folder / f"{name}.csv").write_text("\n".join(["cls,sex,age", *lines, ""]))
    office = Office(folder, names, policy=policy, rows={name: str(folder / f"{name}.csv") for name in names})
    for name, site in office.net.sites.items():
        rows = Rows(str(folder / f"{name}.csv"), extra_columns="ignore", map=MAP)
        site.home.config = msgspec.structs.replace(site.home.config, rows=rows)
        site.home.tables = Tables(site.home.folder, rows)
    return office


def replace_one(folder: Path, name: str) -> None:
    """One patient leaves, another of the same class comes."""
    lines = (folder / f"{name}.csv").read_text().splitlines()
    lines[7] = f"{lines[7].split(',')[0]},f,23"
    (folder / f"{name}.csv").write_text("\n".join([*lines, ""]))


def test_another_name_and_unit_for_every_column_is_the_same_table(tmp_path: Path) -> None:
    """{a, b, c} in years and {a, b, x} in months: x had c's counts, sums and squares."""

    async def test() -> None:
        async with mapped_office(tmp_path, "abcx", open_policy()) as office:
            assert await run(office, study_of(office, "abc", "years", YEARS)) is not None
            assert await run(office, study_of(office, "abx", "months", MONTHS)) is None
            assert "over a, b, c only" in refusals(office)
            # The same sites may ask the unchanged rows otherwise: before, that was refused as a change.
            assert await run(office, study_of(office, "abc", "months of abc", MONTHS)) is not None
            target = Codebook("gender", ("male", "female"), (Categorical("class", ("ill", "well")),))
            assert await run(office, study_of(office, "abc", "another target", target)) is not None

    bounded(test, 90)


def test_a_changed_row_is_seen_between_codebooks_without_a_common_column(tmp_path: Path) -> None:
    async def test() -> None:
        async with mapped_office(tmp_path, "abc", open_policy()) as office:
            assert await run(office, study_of(office, "abc", "years", YEARS)) is not None
            replace_one(tmp_path, "a")
            assert await run(office, study_of(office, "abc", "months", MONTHS)) is None
            assert "the rows of the table 'rows' changed since its last exact sum" in refusals(office)

    bounded(test, 60)


def test_the_same_rows_read_by_another_map_are_changed_data(tmp_path: Path) -> None:
    """Nothing changed but a's map: the difference of two sums over one set was a's number of women by class."""

    async def test() -> None:
        async with mapped_office(tmp_path, "abc", open_policy()) as office:
            assert await run(office, study_of(office, "abc", "years", YEARS)) is not None
            home = office.net.sites["a"].home
            men = MAP | {"sex": {"from": "sex", "values": {"m": "m", "f": "m"}}}
            home.tables = Tables(home.folder, msgspec.structs.replace(home.config.rows, map=men))
            assert await run(office, study_of(office, "abc", "all are men", YEARS)) is None
            assert "others of them count now" in refusals(office)
            home.tables = Tables(home.folder, home.config.rows)
            assert await run(office, study_of(office, "abc", "as before", YEARS)) is not None

    bounded(test, 90)


def test_the_same_sites_repeat_a_study_on_changed_rows_where_policy_allows_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with mapped_office(tmp_path, "abcx", open_policy(changed_data=True)) as office:
            first = await run(office, study_of(office, "abc", "year 1", YEARS))
            replace_one(tmp_path, "a")
            replace_one(tmp_path, "b")
            second = await run(office, study_of(office, "abc", "year 2", YEARS))
            assert first is not None
            assert second is not None
            assert (first != second).any()
            assert await run(office, study_of(office, "abx", "year 3", YEARS)) is None
            names = {entry["table"] for entry in office.net.sites["a"].home.audit.where("event", "computing")}
            assert names == {"rows"}

    bounded(test, 90)


def test_new_rows_may_be_declared_another_table_on_record(tmp_path: Path) -> None:
    async def test() -> None:
        async with mapped_office(tmp_path, "abcx", open_policy()) as office:
            assert await run(office, study_of(office, "abc", "year 1", YEARS)) is not None
            for name in "ab":
                home, path = office.net.sites[name].home, tmp_path / f"{name}-2.csv"
                shutil.copy(tmp_path / f"{name}.csv", path)
                rows = Rows(str(path), name="year-2", extra_columns="ignore", map=MAP)
                home.config = msgspec.structs.replace(home.config, rows=rows)
                home.tables = Tables(home.folder, rows)
            assert await run(office, study_of(office, "abx", "the same rows", YEARS)) is None
            assert "are those of the table 'rows'" in refusals(office)
            for name in "ab":
                (tmp_path / f"{name}-2.csv").write_text((tmp_path / "c.csv").read_text())
            assert await run(office, study_of(office, "abx", "year 2", YEARS)) is not None
            home.note_policy("Ada")
            assert "[rows] name = 'year-2'" in home.audit.where("event", "policy")[-1]["rules"]

    bounded(test, 120)


@pytest.mark.parametrize("epsilon", [None, 0.0], ids=["nothing known", "nothing spent"])
def test_a_lost_disk_does_not_let_an_exact_sum_be_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epsilon: float | None
) -> None:
    """Exact {a, m, c}; a's disk is lost; exact {a, m, d}: m and d had c's table, since no entry of a's ledger was missing."""

    async def test() -> None:
        async with Office(tmp_path, ("a", "m", "c", "d"), policy=open_policy()) as office:
            bound, stored = History.binding, PeerLogHeads.store_heads
            # m runs other software: it has no rule, keeps no heads and shows none.
            forgets = lambda self: self.audit.path.parent.name == "m"  # noqa: E731
            monkeypatch.setattr(office.agents["m"].peer_heads, "seen", lambda site: b"")
            monkeypatch.setattr(History, "binding", lambda self: Binding((), {}) if forgets(self) else bound(self))
            monkeypatch.setattr(
                PeerLogHeads,
                "store_heads",
                lambda self, site, *rest: None if self._identity.name == "m" else stored(self, site, *rest),
            )
            home = office.net.sites["a"].home
            backup(home, tmp_path / "a.backup", PHRASE)
            before = home.ledger.head.n
            assert await run(office, study_of(office, ("m", "a", "c"), "one")) is not None
            assert [entry.kind for entry in home.ledger.entries()][before + 1 :] == ["exact_sum"]
            assert home.ledger.balance().spent_epsilon == 0
            await office.stop("a")
            shutil.rmtree(home.folder)
            office.net.sites["a"].home = home = restore(tmp_path / "a.backup", home.folder, PHRASE)
            acknowledge(home, "disk lost", epsilon=epsilon)
            await office.start("a")
            assert await run(office, study_of(office, ("m", "a", "d"), "two")) is None
            assert "came back from a backup" in refusals(office)

    bounded(test, 90)


def test_the_worst_case_after_a_restore_is_not_that_of_the_backups_policy(tmp_path: Path) -> None:
    """0.5 per run at the backup, 4 afterwards: two runs were booked as 1, and 8 were spent."""
    place = tmp_path / "north"
    strict, lax = (SiteConfig(policy=open_policy(max_epsilon_per_run=each)) for each in (0.5, 4.0))
    home, _ = SiteFolder.create(place, "north", config=strict, epsilon="10")
    for name, epsilon, left in (("all", None, 0.0), ("known", 8.0, 2.0), ("too much", 80.0, 0.0)):
        backup(home, tmp_path / name, PHRASE)
        (place / "site.toml").write_bytes(lax.to_toml("north"))
        home = SiteFolder.open(place)
        for number in "12":
            unit = home.ledger.balance().unit
            home.ledger.charge(Spend(Fraction(4), Fraction(0)), purpose="study", unit=unit, run=number * 32, study="s" * 64)
        shutil.rmtree(place)
        home = restore(tmp_path / name, place, PHRASE)
        acknowledge(home, "two runs of 4 with south", epsilon=epsilon)
        assert home.ledger.balance().left == left
        shutil.rmtree(place)
        home, _ = SiteFolder.create(place, "north", config=strict, epsilon="10")


def restored(home: SiteFolder, file: Path, **known: Any) -> SiteFolder:
    """The site as a backup of now brings it back, after its staff said what is known."""
    backup(home, file, PHRASE)
    shutil.rmtree(home.folder)
    home = restore(file, home.folder, PHRASE)
    acknowledge(home, "disk lost", **known)
    return home


def test_that_nothing_began_since_a_backup_says_nothing_of_a_run_under_way(tmp_path: Path) -> None:
    """It opened its sum afterwards; a log without it let the table into a sum over other sites."""
    home, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(), epsilon="10")
    home.audit.append("joined", run="ab" * 16, study="s" * 64, proposed_by="south")
    with pytest.raises(ConfigError, match="under way at the backup"):
        restored(home, tmp_path / "backup", nothing_ran=True)
    home = SiteFolder.open(tmp_path / "north")
    acknowledge(home, "disk lost", epsilon=0.0, delta=0.0)
    assert home.history.binding().lost_at >= 0


@pytest.mark.parametrize("end", [None, "failed", "done", "settled"])
def test_after_a_restore_a_sum_that_may_have_come_to_nothing_binds_no_table(tmp_path: Path, end: str | None) -> None:
    """Bound to {a, b, c} by a run that had not ended at the backup; it failed, and the lost log had a sum over {a, x, y}."""
    home, made = SiteFolder.create(tmp_path / "a", "a", config=SiteConfig(), epsilon="10")
    parties = (Party("a", made.card.identity.hex()), Party("b", "b" * 64), Party("c", "c" * 64))
    study = make_study_file(title="t", parties=parties, codebook=BOOK, hosts={"server": "a"}, limits=Limits(quorum=3))
    sites, about = [party.identity for party in parties], {"run": "ab" * 16, "study": study.sha256}
    home.audit.append("computing", **about, exact=True, table="rows", rows="d0", quorum=3, contributors=sites)
    home.audit.append("vector left", **about)
    if end is not None:
        home.audit.append("ended", **about, state="done" if end == "done" else "failed")
    home = restored(home, tmp_path / "backup", epsilon=0.0, delta=0.0)
    if end == "settled":
        home.audit.append("settled", **about, included=sites)
    vector = contribution(study, State("", None, "rows"), 3, exact=True)
    asked = replace(request_of(study, "a"), vector=vector)
    if end in ("done", "settled"):
        require_all(asked, home.records(study), KNOWN_SET)
    else:
        with pytest.raises(PrivacyError, match="came back from a backup"):
            require_all(asked, home.records(study), KNOWN_SET)


def test_another_codebook_does_not_let_another_split_be_summed(tmp_path: Path) -> None:
    """Two exact sums whose held_out differs subtract to the rows in between; a changed max_rows was enough to run both."""

    async def test() -> None:
        names = ("north", "south", "west")
        other = msgspec.structs.replace(BOOK, max_rows=BOOK.max_rows + 1)
        async with Office(tmp_path, names, policy=open_policy(changed_data=False)) as office:
            assert await run(office, study_of(office, names, "first", estimation=Estimation(held_out=0.2))) is not None
            assert await run(office, study_of(office, names, "again", other, estimation=Estimation(held_out=0.2))) is not None
            assert await run(office, study_of(office, names, "split", other, estimation=Estimation(held_out=0.3))) is None
            assert await run(office, study_of(office, names, "whole", other)) is None
            assert "two choices of rows may differ by one person" in refusals(office)

    bounded(test, 60)
