"""A release of a study that its parties never saw, or of a run that they were not in.

On the code before receipts `report verify --everyone`, with all true cards, passed the first test's folders of every
protocol in which one party learns the result: the study named the hospitals under their true keys, and none of them had to have
signed anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from blindbayes import RowStudy
from blindbayes.cli.commands.report import command
from blindbayes.datasets import hospitals
from blindbayes.errors import BlindbayesError
from blindbayes.io.files import read_folder, write_folder
from blindbayes.report.checksums import seal_files
from blindbayes.report.manifest import COMMON, COMMON_SIGNATURES, INDEX
from blindbayes.report.receipts import RECEIPTS, Receipt, pack, receipts_text
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Limits, StudyFile
from blindbayes.testing.loopback import Loopback
from support.consoles import Consoles
from support.releases import RUN, release_of, released_sites, signed_by_all

DATA = hospitals(600)
BOOK = msgspec.structs.replace(DATA.codebook, variance_floor=1e-6)
HOSPITALS = tuple(DATA.tables)
SEALS = ("checksums", "signatures.json", COMMON, COMMON_SIGNATURES, INDEX)
HOST = {"server": "mallory"}
OF_PROTOCOL: dict[str, dict[str, Any]] = {
    "masked_sum": {"hosts": HOST},
    "masked_sum to one": {"protocol": "masked_sum", "hosts": HOST, "options": {"publish": False}},
    "masked_sum, quorum": {
        "protocol": "masked_sum",
        "hosts": HOST,
        "options": {"publish": False},
        "limits": Limits(quorum=3),
    },
    "chain_sum": {"protocol": "chain_sum", "hosts": {"builder": "mallory"}},
    "oblivious_sum": {"protocol": "oblivious_sum"},
    "shares": {"protocol": "private_ratio", "hosts": {}, "options": {"queries": 100}},
}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Loopback:
    """Three hospitals, and mallory, who has no rows."""
    return Loopback(tmp_path_factory.mktemp("sites"), {**dict.fromkeys(HOSPITALS, "rows.csv"), "mallory": None})


@pytest.fixture(scope="module")
def made_up() -> dict[str, bytes]:
    return RowStudy(BOOK).simulate(DATA.tables).files()


def verify(net: Loopback, folder: Path, *options: str) -> Result:
    cards = []
    for name, site in net.sites.items():
        path = folder.parent / f"{name}.toml"
        path.write_text(site.identity.card.to_toml())
        cards += ["--card", str(path)]
    return CliRunner().invoke(command, ["verify", str(folder), *cards, *options])


def refused(result: Result) -> str:
    assert isinstance(result.exception, BlindbayesError), result.output
    return str(result.exception)


def forge(
    net: Loopback,
    study: StudyFile,
    files: Mapping[str, bytes],
    owned: Sequence[str],
    folder: Path,
    *,
    included: Sequence[str] | None = HOSPITALS,
    receipts: bytes | None = None,
) -> Path:
    """What somebody with the keys of some parties can write: everything, signed and receipted by those parties."""
    facts: dict[str, Any] = {"study": study.sha256, "codebook": BOOK.sha256, "run": RUN, "title": study.title}
    facts["included"] = None if included is None else list(included)
    for name in owned:
        if name in study.rosters[0].identities:
            study = study.sign(name, net.sites[name].identity.signing)
    left_out = tuple(name for name in study.contributors if name not in (included or study.contributors))
    signed = {
        role: pack(Receipt(left_out).sign(study.roster.sha256, RUN, role, net.sites[study.host(role)].identity.signing))
        for role in study.roles
        if study.host(role) in owned
    }
    own = receipts_text(study.roster.sha256, RUN, {role: study.identity(role) for role in study.roles}, signed)
    kept = {name: content for name, content in files.items() if name not in SEALS}
    kept |= {"run.json": json.dumps(facts).encode(), "study.toml": study.to_toml().encode(), RECEIPTS: receipts or own}
    return write_folder(folder, seal_files(kept, {name: net.sites[name].identity.signing for name in owned}))


@pytest.mark.parametrize("owned", [("mallory",), ("mallory", "north"), ("mallory", "north", "south")])
@pytest.mark.parametrize("protocol", OF_PROTOCOL)
@pytest.mark.parametrize("option", ["--everyone", "--json"])
def test_a_study_that_its_hospitals_never_saw_does_not_verify(
    net: Loopback, made_up: dict[str, bytes], tmp_path: Path, protocol: str, owned: tuple[str, ...], option: str
) -> None:
    study = net.make_study(BOOK, title="National outcomes study", **OF_PROTOCOL[protocol])
    result = verify(net, forge(net, study, made_up, owned, tmp_path / "release"), option)
    assert result.exit_code != 0
    assert refused(result).split()[0] in {*HOSPITALS} - {*owned} or "is not a file that mallory can have" in refused(result)


def test_a_made_up_training_over_columns_does_not_verify(net: Loopback, made_up: dict[str, bytes], tmp_path: Path) -> None:
    first, *others = BOOK.names
    parties = tuple(party for party in net.make_study(BOOK, hosts=HOST).parties if party.name in ("north", "south"))
    held = Holdings({"north": (first,), "south": tuple(others)}, ("north",), 600)
    study = net.make_study(BOOK, kind="columns", columns=held, parties=parties, hosts={}, options={"queries": 10})
    folder = forge(net, study, made_up, ("north",), tmp_path / "release", included=None)
    assert "south has not signed" in refused(verify(net, folder, "--everyone"))


def test_fewer_contributors_than_the_quorum_are_no_result(net: Loopback, made_up: dict[str, bytes], tmp_path: Path) -> None:
    """A forger that owns two parties names these two alone: what it signed itself is all there is."""
    study = net.make_study(BOOK, **OF_PROTOCOL["masked_sum to one"])
    owned = ("mallory", "north", "south")
    folder = forge(net, study, made_up, owned, tmp_path / "release", included=("north", "south"))
    assert "fewer contributors than the quorum" in refused(verify(net, folder, "--everyone"))
    for at, included in enumerate(((), ("north", "north", "north"), ("north", "elsewhere", "south"))):
        folder = forge(net, study, made_up, owned, tmp_path / f"{at}", included=included)
        assert "do not rely" in refused(verify(net, folder, "--partial"))


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Loopback:
    return released_sites(tmp_path_factory.mktemp("release") / "sites")


def resealed(sites: Loopback, changed: Mapping[str, bytes], folder: Path) -> Path:
    """North's release with other files, sealed and signed by all three again: they collude, or were told something else."""
    kept = {name: content for name, content in read_folder(release_of(sites, "north")).items() if name not in SEALS}
    return write_folder(
        folder, seal_files({**kept, **changed}, {name: each.identity.signing for name, each in sites.sites.items()})
    )


def test_receipts_of_one_run_are_none_of_another_run_study_or_party(sites: Loopback, tmp_path: Path) -> None:
    good = signed_by_all(sites)
    assert verify(sites, write_folder(tmp_path / "good", good), "--everyone").exit_code == 0
    facts, receipts = json.loads(good["run.json"]), json.loads(good[RECEIPTS])
    other_run = json.dumps({**facts, "run": "cd" * 16}).encode()
    assert "is not signed by it for this run" in refused(
        verify(sites, resealed(sites, {"run.json": other_run}, tmp_path / "1"))
    )
    study = sites.make_study(DATA.codebook, title="readmission, again")
    other = {"run.json": json.dumps({**facts, "study": study.sha256, "title": study.title}).encode()}
    other["study.toml"] = study.to_toml().encode()
    assert "is not signed by it for this run" in refused(verify(sites, resealed(sites, other, tmp_path / "2")))
    swapped = json.dumps({**receipts, "west": receipts["south"]}).encode()
    assert "the receipt of west is not signed" in refused(verify(sites, resealed(sites, {RECEIPTS: swapped}, tmp_path / "3")))
    edited = json.dumps({**receipts, "west": {**receipts["west"], "left_out": None}}).encode()
    assert "the receipt of west is not signed" in refused(verify(sites, resealed(sites, {RECEIPTS: edited}, tmp_path / "4")))
    for at, bad in enumerate(
        (b"[]", b"{", b'{"west": 3}', b'{"mallory": {}}', b'{"west": {"left_out": [], "signature": "x"}}')
    ):
        assert refused(verify(sites, resealed(sites, {RECEIPTS: bad}, tmp_path / f"bad {at}")))


def test_a_receipt_that_is_missing_is_named_and_partial_goes_without(sites: Loopback, tmp_path: Path) -> None:
    receipts = json.loads(read_folder(release_of(sites, "north"))[RECEIPTS])
    left = json.dumps({role: each for role, each in receipts.items() if role != "west"}).encode()
    folder = resealed(sites, {RECEIPTS: left}, tmp_path / "release")
    result = verify(sites, folder)
    assert refused(result).startswith("west is named in this release and there is no receipt")
    assert "named, without a receipt: west" in result.output
    partial = verify(sites, folder, "--partial", "--json")
    assert (partial.exit_code, json.loads(partial.output)["no receipt of"]) == (0, ["west"])


def test_a_contributor_that_says_the_sum_was_of_others_is_believed(sites: Loopback, tmp_path: Path) -> None:
    """The learners agree on a set of contributors; one that is in it signed for another set."""
    good = read_folder(release_of(sites, "north"))
    study = StudyFile.from_text(good["study.toml"].decode())
    signed = Receipt(("south",)).sign(study.roster.sha256, RUN, "west", sites.sites["west"].identity.signing)
    receipts = {**json.loads(good[RECEIPTS]), "west": {"left_out": ["south"], "signature": signed.signature}}
    folder = resealed(sites, {RECEIPTS: json.dumps(receipts).encode()}, tmp_path / "release")
    assert "the receipt of west is for a sum of other contributors" in refused(verify(sites, folder, "--partial"))


def test_the_consoles_page_asks_for_receipts_too(tmp_path: Path, made_up: dict[str, bytes]) -> None:
    with Consoles(tmp_path, (*HOSPITALS, "mallory")) as office:
        study = office.office.net.make_study(BOOK, **OF_PROTOCOL["masked_sum to one"])
        forge(office.office.net, study, made_up, ("mallory",), office.office.net.sites["north"].home.folder / "releases" / RUN)
        found = office.ask("north", "GET", f"/api/releases/{RUN}").json
        assert (found["problem"], found["missing"]) == ("", [])
        assert set(found["no_receipt"]) == {*HOSPITALS}
        page = office.ask("north", "GET", f"/releases/{RUN}", headers=office.sign_in("north"), token=False).text
        assert "without a receipt that the cards pinned here confirm" in page
