"""`blindbayes report`: what it checks and what it says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blindbayes import Privacy, RowStudy
from blindbayes.cli.commands.report import command
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.signatures import SigningKey
from blindbayes.datasets import hospitals
from blindbayes.errors import BlindbayesError, DataError
from blindbayes.io.files import read_folder, write_folder
from blindbayes.net.identity import Identity
from blindbayes.report.checksums import seal_files

DATA = hospitals(600)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    where = tmp_path_factory.mktemp("releases")
    result = RowStudy(DATA.codebook).simulate(DATA.tables)
    keys = {name: SigningKey(bytes([at]) * 32) for at, name in enumerate(("north", "south"))}
    return {name: result.save(where / name, signers={name: key}) for name, key in keys.items()}


def called(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_it_says_who_learned_what(folders: dict[str, Path]) -> None:
    done = called(*map(str, folders.values()))
    assert done.exit_code == 0, done.output
    for word in ("files are as they were released", "signed by north", "signed by south", "exact sum", "sum of the other 2"):
        assert word in " ".join(done.output.split())


def test_json_holds_the_same(folders: dict[str, Path]) -> None:
    facts = json.loads(called(str(folders["north"]), "--json").output)
    assert set(facts["signed by"]) == {"north"}
    assert facts["parties"]["server"]["opened"] == ["sum"]
    assert facts["unforeseen"] == []


def refused(*arguments: str) -> BlindbayesError:
    problem = called(*arguments).exception
    assert isinstance(problem, BlindbayesError)
    return problem


def test_a_changed_file_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    copy = shutil.copytree(folders["north"], tmp_path / "copy")
    (copy / "model.json").write_bytes((copy / "model.json").read_bytes().replace(b"no", b"on", 1))
    assert "model.json was changed" in str(refused(str(copy)))


def test_sites_that_were_told_different_results_are_noticed(folders: dict[str, Path], tmp_path: Path) -> None:
    files = read_folder(folders["south"])
    other = RowStudy(DATA.codebook).simulate({**DATA.tables, "west": DATA.tables["north"]}).files()
    kept = {name: content for name, content in files.items() if name not in {"checksums", "signatures.json"}}
    write_folder(tmp_path / "other", seal_files({**kept, "model.json": other["model.json"]}))
    assert "different model.json" in str(refused(str(folders["north"]), str(tmp_path / "other")))


def test_a_label_that_no_specification_knows_ends_in_an_error(folders: dict[str, Path], tmp_path: Path) -> None:
    kept = {
        name: content for name, content in read_folder(folders["north"]).items() if name not in {"checksums", "signatures.json"}
    }
    leakage = json.loads(kept["leakage.json"])
    leakage["unforeseen"] = ["rows"]
    write_folder(tmp_path / "odd", seal_files({**kept, "leakage.json": json.dumps(leakage).encode()}))
    assert isinstance(refused(str(tmp_path / "odd")), DataError)


def test_a_card_must_fit_the_signature(tmp_path: Path) -> None:
    identity = Identity.generate("north", coins=Coins.seeded(bytes(32)))
    stranger = Identity.generate("north", coins=Coins.seeded(bytes([1]) * 32))
    for name, each in (("north", identity), ("stranger", stranger)):
        (tmp_path / f"{name}.toml").write_text(each.card.to_toml())
    result = RowStudy(DATA.codebook).simulate(DATA.tables)
    folder = result.save(tmp_path / "release", signers={"north": identity.signing})
    done = called(str(folder), "--card", str(tmp_path / "north.toml"), "--json")
    assert json.loads(done.output)["cards that fit"] == ["north"]
    assert "no folder is signed" in str(refused(str(folder), "--card", str(tmp_path / "stranger.toml")))


def test_the_registry_record_is_made_from_the_release_and_the_publishers_facts(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "officer.md").read_text(encoding="utf-8")
    facts = page.split("```toml\n")[1].split("```")[0]
    (tmp_path / "publisher.toml").write_text(facts)
    folder = RowStudy(DATA.codebook, privacy=Privacy(epsilon=1.0)).simulate(DATA.tables).save(tmp_path / "private")
    done = called(str(folder), "--registry", str(tmp_path / "publisher.toml"))
    assert done.exit_code == 0, done.output
    assert 'name: "Readmission"' in done.output
    assert "epsilon: 1.0" in done.output
    (tmp_path / "gap.toml").write_text(facts.replace('region = "Norway"\n', ""))
    assert "'region' is missing" in str(refused(str(folder), "--registry", str(tmp_path / "gap.toml")))
    exact = RowStudy(DATA.codebook).simulate(DATA.tables).save(tmp_path / "exact")
    assert "not differentially private" in str(refused(str(exact), "--registry", str(tmp_path / "publisher.toml")))
