"""One release folder with the signatures of all parties: who may sign, what is refused, what is said."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blindbayes import RowStudy
from blindbayes.cli.commands.report import command
from blindbayes.errors import BlindbayesError
from blindbayes.io.files import read_folder, write_folder
from blindbayes.report.checksums import seal_files
from blindbayes.report.manifest import COMMON, COMMON_SIGNATURES, signed_entry
from blindbayes.testing.loopback import Loopback
from support.releases import DATA, release_of, released_sites

SEALS = {"checksums", "signatures.json", COMMON, COMMON_SIGNATURES}


@pytest.fixture
def sites(tmp_path: Path) -> Loopback:
    """Three sites, each with its own release of one run, as their agents write it."""
    return released_sites(tmp_path / "sites")


def called(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in arguments])


def refused(*arguments: object) -> str:
    problem = called(*arguments).exception
    assert isinstance(problem, BlindbayesError), problem
    return str(problem)


def verified(sites: Loopback, folder: Path, *arguments: object) -> Result:
    """By the pins of a site, as its officer does it."""
    return called("verify", folder, "--config", sites.sites["west"].home.folder, *arguments)


def not_verified(sites: Loopback, folder: Path) -> str:
    problem = verified(sites, folder, "--partial").exception
    assert isinstance(problem, BlindbayesError), problem
    return str(problem)


def resealed(sites: Loopback, name: str, changed: dict[str, bytes]) -> None:
    """The site's release with other files, sealed anew by it: a site that was told something else."""
    folder = release_of(sites, name)
    kept = {file: content for file, content in read_folder(folder).items() if file not in SEALS}
    shutil.rmtree(folder)
    write_folder(folder, seal_files({**kept, **changed}, {name: sites.sites[name].identity.signing}))


def test_all_sign_one_folder_and_it_verifies(sites: Loopback, tmp_path: Path) -> None:
    folder = shutil.copytree(release_of(sites, "north"), tmp_path / "release")
    before = json.loads(verified(sites, folder, "--json", "--partial").output)
    assert (list(before["signed by"]), before["not signed by"]) == (["north"], ["south", "west"])
    assert "south has not signed" in str(verified(sites, folder).exception)
    for name in ("south", "west"):
        done = called("sign", folder, "--config", sites.sites[name].home.folder)
        assert done.exit_code == 0, done.output
    assert "Signatures in the folder: north, south, west." in done.output
    after = json.loads(verified(sites, folder, "--everyone", "--json").output)
    assert (list(after["signed by"]), after["not signed by"]) == (["north", "south", "west"], [])
    assert {"model.json", "model_card.md", "statement.md", "explain.html", "plots/priors.svg"} <= set(after["common files"])
    assert "leakage.html" not in after["common files"]
    assert after["vouched for by"]["claims.json"] == after["vouched for by"]["model.json"] == ["north", "south", "west"]
    assert after["vouched for by"]["leakage.json"] == after["vouched for by"]["cost.json"] == ["north"]
    text = " ".join(verified(sites, folder).output.split())
    assert "signed by west" in text
    assert "nobody is missing" in text
    assert called(folder).exit_code == 0  # `report FOLDER` still reads it
    assert called("show", folder).exit_code == 0


def test_the_last_bit_of_a_logarithm_makes_no_difference_and_a_count_does(sites: Loopback) -> None:
    model = json.loads((release_of(sites, "south") / "model.json").read_text())
    prior = model["parameters"]["log_prior"]
    prior[0] = math.nextafter(prior[0], 0.0)
    resealed(sites, "south", {"model.json": json.dumps(model).encode()})
    assert called("sign", release_of(sites, "north"), "--config", sites.sites["south"].home.folder).exit_code == 0
    assert called(release_of(sites, "north"), release_of(sites, "south")).exit_code == 0
    prior[0] *= 1 + 1e-6
    resealed(sites, "west", {"model.json": json.dumps(model).encode()})
    said = refused("sign", release_of(sites, "north"), "--config", sites.sites["west"].home.folder)
    assert said.startswith("model.json differs")
    assert "different model.json" in refused(release_of(sites, "north"), release_of(sites, "west"))


@pytest.mark.parametrize("name", ["model.json", "statement.md", "plots/priors.svg"])
def test_a_site_that_was_told_something_else_does_not_sign_and_names_the_file(sites: Loopback, name: str) -> None:
    resealed(sites, "south", {name: b'{"something": "else"}'})
    folder = release_of(sites, "north")
    said = refused("sign", folder, "--config", sites.sites["south"].home.folder)
    assert said.startswith(f"{name} differs")
    assert list(json.loads((folder / COMMON_SIGNATURES).read_text())) == ["north"]


def test_another_run_or_other_contributors_are_told_apart(sites: Loopback) -> None:
    facts = json.loads((release_of(sites, "south") / "run.json").read_text())
    resealed(sites, "south", {"run.json": json.dumps({**facts, "included": ["north", "south"]}).encode()})
    assert "the included of the run differs" in refused(
        "sign", release_of(sites, "north"), "--config", sites.sites["south"].home.folder
    )
    shutil.rmtree(release_of(sites, "west"))
    assert "west has no release of run" in refused(
        "sign", release_of(sites, "north"), "--config", sites.sites["west"].home.folder
    )


def test_a_site_that_did_not_learn_the_result_has_nothing_to_sign(sites: Loopback) -> None:
    facts = json.loads((release_of(sites, "south") / "run.json").read_text())
    kept = {"run.json": json.dumps({**facts, "included": None}).encode()}
    folder = release_of(sites, "south")
    files = {name: content for name, content in read_folder(folder).items() if name in {"study.toml", "leakage.html"}}
    shutil.rmtree(folder)
    sealed = seal_files({**files, **kept}, {"south": sites.sites["south"].identity.signing})
    assert COMMON_SIGNATURES not in sealed
    write_folder(folder, sealed)
    said = refused("sign", release_of(sites, "north"), "--config", sites.sites["south"].home.folder)
    assert "did not learn the result" in said


def test_forged_signatures_and_changed_lists_are_refused(sites: Loopback, tmp_path: Path) -> None:
    folder = shutil.copytree(release_of(sites, "north"), tmp_path / "release")
    signatures = json.loads((folder / COMMON_SIGNATURES).read_text())
    (folder / COMMON_SIGNATURES).write_text(json.dumps({**signatures, "south": signatures["north"]}))
    assert "south signed with a key that the study does not name" in not_verified(sites, folder)
    south = sites.sites["south"].identity.signing
    wrong = {**signed_entry(south, b""), "signature": signatures["north"]["signature"]}
    (folder / COMMON_SIGNATURES).write_text(json.dumps({"south": wrong}))
    assert "the signature of south does not fit" in not_verified(sites, folder)
    (folder / COMMON_SIGNATURES).write_text("[]")
    assert "not a table" in not_verified(sites, folder)
    (folder / COMMON_SIGNATURES).write_text("{}")
    assert "north made this folder and did not sign the common files" in not_verified(sites, folder)
    (folder / "model.json").write_text("{}")
    assert "model.json was changed" in not_verified(sites, folder)


def test_a_list_that_does_not_fit_its_files_is_no_list(sites: Loopback, tmp_path: Path) -> None:
    """Whoever seals a folder anew cannot keep the others' signatures."""
    folder = release_of(sites, "north")
    files = read_folder(folder)
    kept = {name: content for name, content in files.items() if name not in SEALS}
    forged = seal_files({**kept, "model.json": b"{}"}, {"north": sites.sites["north"].identity.signing})
    forged[COMMON_SIGNATURES] = files[COMMON_SIGNATURES]
    assert "the signature of north does not fit" in not_verified(sites, write_folder(tmp_path / "forged", forged))


def test_a_stranger_and_a_simulation_are_told_what_is_wrong(sites: Loopback, tmp_path: Path) -> None:
    stranger = Loopback(tmp_path / "others", {"north": "rows.duckdb"})
    said = refused("sign", release_of(sites, "south"), "--config", stranger.sites["north"].home.folder)
    assert "another key for north" in said
    simulated = RowStudy(DATA.codebook).simulate(DATA.tables).save(tmp_path / "simulated")
    assert "no site took part in this release" in refused("verify", simulated)
