"""A release folder that was forged after all had signed it: nothing that anybody relies on can be exchanged unseen.

The first attack was run against the code before `claims.json`: `report verify --everyone` vouched for a leak report that said
the opposite of what the sites had signed, because it lay outside the common list and its maker's signature could be deleted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blindbayes.cli.commands.report import command
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.signatures import PUBLIC_BYTES, SIGNATURE_BYTES, SigningKey
from blindbayes.errors import BlindbayesError, DataError
from blindbayes.io.files import write_folder
from blindbayes.report.checksums import seal_files
from blindbayes.report.manifest import COMMON_SIGNATURES, read_manifest, signatures_text, signed_entry
from blindbayes.testing.loopback import Loopback
from support.releases import released_sites, signed_by_all

LIE = "Nothing can be learned from this release (forged)."
SEALS = ("checksums", "signatures.json", "common.json", COMMON_SIGNATURES)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Loopback:
    return released_sites(tmp_path_factory.mktemp("release") / "sites")


@pytest.fixture(scope="module")
def good(sites: Loopback) -> dict[str, bytes]:
    return signed_by_all(sites)


def with_checksums(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What anybody can do: list the files anew."""
    left_out = ("checksums", "signatures.json", COMMON_SIGNATURES)
    lines = [
        f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()) if name not in left_out
    ]
    return {**files, "checksums": "".join(lines).encode()}


def with_lie(files: Mapping[str, bytes]) -> dict[str, bytes]:
    report = json.loads(files["leakage.json"])
    forged = {"leakage.json": json.dumps({**report, "follows": [LIE]}).encode(), "leakage.html": f"<p>{LIE}</p>".encode()}
    return {**files, **forged}


def verified(sites: Loopback, files: Mapping[str, bytes], folder: Path, *options: object) -> Result:
    where = write_folder(folder, files)
    arguments = ["verify", where, "--config", sites.sites["west"].home.folder, *options]
    return CliRunner().invoke(command, [str(word) for word in arguments])


def refused(result: Result) -> str:
    assert isinstance(result.exception, BlindbayesError), result.output
    return str(result.exception)


def test_the_folder_that_was_not_forged_verifies(sites: Loopback, good: dict[str, bytes], tmp_path: Path) -> None:
    assert verified(sites, good, tmp_path / "release").exit_code == 0


def test_a_forged_leak_report_with_the_makers_signature_deleted_fails(
    sites: Loopback, good: dict[str, bytes], tmp_path: Path
) -> None:
    forged = with_checksums(with_lie(good))
    del forged["signatures.json"]
    assert "did not sign it" in refused(verified(sites, forged, tmp_path / "release"))
    shown = CliRunner().invoke(command, [str(tmp_path / "release")])
    assert "did not sign it" in refused(shown)
    assert LIE not in shown.output


def test_a_maker_that_forges_its_own_leak_report_is_held_to_the_claims_that_all_signed(
    sites: Loopback, good: dict[str, bytes], tmp_path: Path
) -> None:
    kept = {name: content for name, content in good.items() if name not in (*SEALS, "claims.json")}
    key = {"north": sites.sites["north"].identity.signing}
    resealed = {**seal_files(with_lie(kept), key), COMMON_SIGNATURES: good[COMMON_SIGNATURES]}
    assert "does not fit common.json" in refused(verified(sites, resealed, tmp_path / "resealed"))
    patched = with_checksums(with_lie(good))  # the claims as signed, the leak report not
    context = b"blindbayes release v1\n"
    patched["signatures.json"] = json.dumps({"north": signed_entry(key["north"], context + patched["checksums"])}).encode()
    assert "does not say what claims.json says" in refused(verified(sites, patched, tmp_path / "patched"))


def test_keys_that_the_folder_brings_itself_count_for_nothing(
    sites: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger forges study, keys and signatures together: consistent in itself, and worthless to who has cards."""
    forged = signed_by_all(released_sites(tmp_path / "forged sites"))
    assert "another key for north than its card" in refused(verified(sites, forged, tmp_path / "release"))
    alone = CliRunner().invoke(command, ["verify", str(tmp_path / "release"), "--config", str(tmp_path / "nowhere")])
    assert isinstance(alone.exception, BlindbayesError)
    monkeypatch.chdir(tmp_path)  # where no site.toml lies
    without = CliRunner().invoke(command, ["verify", str(tmp_path / "release")])
    assert "no cards were given" in refused(without)


def test_a_signature_whose_card_was_not_brought_does_not_count(sites: Loopback, good: dict[str, bytes], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "release", good)
    card = tmp_path / "north.toml"
    card.write_text(sites.sites["north"].identity.card.to_toml())
    result = CliRunner().invoke(command, ["verify", str(folder), "--card", str(card)])
    assert "south signed, and you brought no card of south" in refused(result)
    card.write_text(sites.sites["south"].identity.card.to_toml())
    result = CliRunner().invoke(command, ["verify", str(folder), "--card", str(card)])
    assert "no party that you know vouches for it" in refused(result)


def test_a_key_that_stands_twice_in_the_model_is_no_model(sites: Loopback, good: dict[str, bytes], tmp_path: Path) -> None:
    """The last of two wins in most readers: one program would show other statistics than another."""
    doubled = good["model.json"].replace(b'"statistics":', b'"statistics": null, "statistics":', 1)
    forged = with_checksums({**good, "model.json": doubled})
    said = refused(verified(sites, forged, tmp_path / "release"))
    assert "fit" in said
    assert "name twice" in refused(_sealed_by_north(sites, {**good, "model.json": doubled}, tmp_path / "sealed"))


def _sealed_by_north(sites: Loopback, files: Mapping[str, bytes], folder: Path) -> Result:
    kept = {name: content for name, content in files.items() if name not in SEALS}
    try:
        sealed = seal_files(kept, {"north": sites.sites["north"].identity.signing})
    except DataError as problem:
        return Result(CliRunner(), b"", b"", b"", None, 3, problem)
    return verified(sites, sealed, folder)


@pytest.mark.parametrize("name", ["extra.share", "extra.share.spent", "notes.txt", "plots/more.svg", "model.json.bak"])
def test_a_file_more_than_was_released_fails(sites: Loopback, good: dict[str, bytes], tmp_path: Path, name: str) -> None:
    assert f"{name} is not part of the release" in refused(verified(sites, {**good, name: b"x"}, tmp_path / "release"))


@pytest.mark.parametrize(
    "name",
    ["leakage.json", "leakage.html", "cost.json", "run.json", "statement.md", "statement.json", "study.toml", "model.json",
     "model_card.md", "explain.html", "claims.json", "common.json", "plots/priors.svg", "checksums"],
)  # fmt: skip
def test_every_file_is_vouched_for_and_no_byte_of_it_can_be_changed(
    sites: Loopback, good: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    """Changed, and the checksums written anew: the maker's signature no longer fits, whatever the file."""
    forged = with_checksums({**good, name: good[name] + b"\n"})
    if name == "checksums":
        forged[name] = good[name] + b"\n"
    assert refused(verified(sites, forged, tmp_path / "release"))


def test_a_line_of_the_checksums_that_stands_twice_is_refused(sites: Loopback, good: dict[str, bytes], tmp_path: Path) -> None:
    doubled = {**good, "checksums": good["checksums"] + good["checksums"].split(b"\n")[0] + b"\n"}
    assert "not readable" in refused(verified(sites, doubled, tmp_path / "release"))


def test_a_stranger_cannot_sign_in_the_makers_place(sites: Loopback, good: dict[str, bytes], tmp_path: Path) -> None:
    forged = with_checksums(with_lie(good))
    key = SigningKey.generate(Coins.seeded(bytes(32)))
    for name in ("north", "mallory"):
        entry = signed_entry(key, b"blindbayes release v1\n" + forged["checksums"])
        forged["signatures.json"] = json.dumps({name: entry}).encode()
        said = refused(verified(sites, forged, tmp_path / name))
        assert "key that the study does not name" in said or "does not say what claims.json says" in said
        shutil.rmtree(tmp_path / name)


def test_who_breaks_the_curve_later_forges_no_release(sites: Loopback, good: dict[str, bytes], tmp_path: Path) -> None:
    """The forger signs as everybody with Ed25519, and has no ML-DSA key of anybody: neither its own one nor none will do."""

    class Broken(SigningKey):
        """The curve's key of a site, and the forger's of the lattice."""

        @property
        def lasting_public(self) -> bytes:
            return self.public + own.lasting_public[PUBLIC_BYTES:]

        def sign_lasting(self, payload: bytes) -> bytes:
            return self.sign(payload) + own.sign_lasting(payload)[SIGNATURE_BYTES:]

    own = SigningKey.generate(Coins.seeded(bytes(32)))
    broken = {}
    for name in sites.sites:
        broken[name] = Broken(sites.sites[name].identity.signing._secret[:32])
    kept = {name: content for name, content in good.items() if name not in (*SEALS, "claims.json")}
    true = seal_files(kept, {"north": sites.sites["north"].identity.signing})
    manifest = read_manifest(true)
    entries = {name: manifest.sign(name, key) for name, key in broken.items()}
    forged = {**true, "signatures.json": seal_files(kept, {"north": broken["north"]})["signatures.json"]}
    said = refused(verified(sites, forged, tmp_path / "another"))
    assert "north signed with another ML-DSA key than on its card" in said
    shutil.rmtree(tmp_path / "another")
    true[COMMON_SIGNATURES] = signatures_text({**json.loads(true[COMMON_SIGNATURES]), "south": entries["south"]})
    said = refused(verified(sites, true, tmp_path / "of south"))
    assert "south signed with another ML-DSA key than on its card" in said
    shutil.rmtree(tmp_path / "of south")
    for file in ("signatures.json", COMMON_SIGNATURES):
        stripped = dict(good)
        table = json.loads(good[file])
        table["north"]["signature"] = table["north"]["signature"][: 2 * SIGNATURE_BYTES]
        stripped[file] = json.dumps(table).encode()
        assert "signature of north does not fit" in refused(verified(sites, stripped, tmp_path / file))


def unlearned(sites: Loopback, files: Mapping[str, bytes], *names: str) -> dict[str, bytes]:
    """North says that it learned nothing, lies, and seals what it likes alone."""
    kept = {name: content for name, content in with_lie(files).items() if name in names or name in OF_A_PART}
    kept["run.json"] = json.dumps({**json.loads(files["run.json"]), "included": None}).encode()
    kept |= {"model-final.json": files["model.json"]} if "model-final.json" in names else {}
    return seal_files(kept, {"north": sites.sites["north"].identity.signing})


OF_A_PART = ("leakage.json", "leakage.html", "cost.json", "run.json", "statement.md", "study.toml")


@pytest.mark.parametrize("names", [(), ("model-final.json", "model_card.md", "statement.json", "plots/priors.svg")])
def test_a_learner_that_says_it_learned_nothing_still_needs_the_others(
    sites: Loopback, good: dict[str, bytes], tmp_path: Path, names: tuple[str, ...]
) -> None:
    """On the code before, run.json and the name of the model decided who had to sign: this passed, with nobody missing."""
    forged = unlearned(sites, good, *names)
    result = verified(sites, forged, tmp_path / "release", "--everyone")
    assert "north has not signed" in refused(result)
    assert "not signed by: north, south, west" in result.output


def test_a_folder_of_who_learned_nothing_holds_its_part_alone_and_says_so(
    sites: Loopback, good: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blindbayes.agent.runs.release.learners_of", lambda study: ("south",))
    for name in ("model-final.json", "model_card.md", "statement.json", "plots/priors.svg", "explain.html"):
        said = refused(verified(sites, unlearned(sites, good, name), tmp_path / name, "--partial"))
        assert f"{name} is not a file that north can have" in said
    assert "is not a file that north can have" in refused(verified(sites, good, tmp_path / "resealed"))
    kept = {name: content for name, content in unlearned(sites, good).items() if name not in (*SEALS, "index.html")}
    with_classes = seal_files({**kept, "classes.csv": b"row\n"}, {"north": sites.sites["north"].identity.signing})
    assert "classes.csv is not a file that north can have" in refused(verified(sites, with_classes, tmp_path / "classes"))
    result = verified(sites, unlearned(sites, good), tmp_path / "part")
    assert result.exit_code == 0, result.exception
    assert "Nobody but north vouches for anything here" in result.output
    assert "nobody is missing" not in result.output
    assert "common to all" not in result.output
    assert "nobody but north" in refused(verified(sites, unlearned(sites, good), tmp_path / "again", "--everyone"))
