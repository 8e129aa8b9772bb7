"""Attacks on what site agents keep of studies over columns: rows that change, logs that are cut, folders signed unseen."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from msgspec import to_builtins

from blindbayes.agent.runs.context import work_of
from blindbayes.cli.commands.report import command as report_command
from blindbayes.cli.commands.study_predict import copy_classes
from blindbayes.data.columns import open_columns
from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.errors import ConfigError, DataError, LedgerError, LocalProtocolError, PeerProtocolError
from blindbayes.io.files import read_folder, write_folder
from blindbayes.report.checksums import seal_files, verify_files
from blindbayes.report.manifest import COMMON_SIGNATURES
from blindbayes.study.tasks.checked_table import CheckedTable
from blindbayes.study.tasks.prediction import Request, prediction_run
from blindbayes.testing.loopback import Loopback
from support.column_sites import HURRY, ask, classes, office_of, pair, predict, small, train, trained
from support.sites import Office, bounded


def test_rows_that_end_early_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file cut at the end of a block between the digest and the use: every block that came was as it had been."""
    monkeypatch.setattr("blindbayes.study.tasks.checked_table.KEPT_BYTES", 0)  # as of a table that is too large to be kept
    frame, book = small()[:40], pair().book
    wanted = frame.drop(columns=["weight", "smokes"])
    held = msgspec.structs.replace(book, features=tuple(each for each in book.features if each.name in ("age", "colour")))
    table = CheckedTable(open_columns(wanted, held), training=True, size=8)
    table.digest(b"k" * 32)
    assert sum(block.rows for block in table.blocks()) == 40
    table.source = open_columns(wanted[:32], held)
    for rows in (table.blocks, table.labels):
        with pytest.raises(LocalProtocolError, match="rows changed"):
            list(rows())


def test_columns_that_stand_beside_the_classes_belong_to_the_input(tmp_path: Path) -> None:
    """After a crash the classes must not stand beside other people: kept columns were no part of the digest."""
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            agent, rows = office.agents["insurer"], small(6)
            digests = []
            for numbers in (range(6), reversed(range(6))):
                asked = split.ask(tmp_path, rows.assign(number=list(numbers)), number="number")["insurer"]
                request = Request(model, "b", asked["rows"], keep=("number",))
                work = work_of(
                    agent.home, agent.identity, prediction_run(study.sha256, model, "b"), study, to_builtins(request)
                )
                work.task.read()
                digests.append(work.task.digest("insurer"))
                work.close()
            assert digests[0] != digests[1]

    bounded(test)


# -- logs ----------------------------------------------------------------------------------------------------------------------


def test_a_log_that_is_cut_or_replaced_under_a_running_agent_is_noticed(tmp_path: Path) -> None:
    """The rest of a cut log is a good chain: a bit about the overlap, a run or a charge would be forgotten."""
    home = Loopback(tmp_path, {"north": None}).sites["north"].home
    home.audit.append("computing", run="ab" * 16, study="0" * 64, exact=False)
    assert len(home.history.starts()) == 1
    whole = home.audit.path.read_bytes()
    home.audit.path.write_bytes(b"\n".join(whole.splitlines()[:-1]) + b"\n")
    with pytest.raises(LedgerError, match="cut or replaced"):
        home.history.starts()
    AuditLog(home.audit.path).append("refused", why="the cut is covered by as many new entries")
    with pytest.raises(LedgerError, match="cut or replaced"):
        home.audit.append("refused", why="nor is anything written to what is left")
    with pytest.raises(LedgerError, match="cut or replaced"):
        home.history.starts()
    home.audit.path.unlink()
    with pytest.raises(LedgerError, match="gone"):
        home.history.starts()


def test_an_edit_of_the_log_that_keeps_size_and_time_is_noticed(tmp_path: Path) -> None:
    home = Loopback(tmp_path, {"north": None}).sites["north"].home
    home.audit.append("computing", run="ab" * 16, study="0" * 64, exact=False)
    home.history.entries()
    before = home.audit.path.stat()
    raw = home.audit.path.read_bytes()
    home.audit.path.write_bytes(raw.replace(b'"computing"', b'"c0mputing"'))
    os.utime(home.audit.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(LedgerError, match="altered"):
        home.history.entries()


@pytest.mark.parametrize("heads", [b"[" * 100_000, json.dumps({"audit": "x" * 10**6, "ledger": ""}).encode()])
def test_what_others_say_of_their_logs_does_not_fill_ours(tmp_path: Path, heads: bytes) -> None:
    async def test() -> None:
        async with Office(tmp_path, ("north",), rows={"north": None}) as office:
            agent = office.agents["north"]
            before = agent.home.audit.path.stat().st_size
            with pytest.raises(PeerProtocolError, match="does not show the heads"):
                agent.peer_heads.store_heads("south", "south", "ab" * 16, heads, b"", b"")
            assert agent.home.audit.path.stat().st_size == before

    bounded(test)


def test_values_stand_in_no_log_error_or_status(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Canaries in every place where a table may be wrong: a label, a number, a batch; nothing but the table shows them."""
    split = pair()
    frame = small()
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []

    async def test() -> None:
        async with trained(tmp_path, split, deadlines=HURRY) as (office, study, model):
            for column, canary in (("weight", "canary-4711"), ("weight", "4711.4711")):
                rows = frame.astype({"weight": object})
                rows.loc[3, column] = canary
                asked = split.ask(tmp_path, rows, "wrong")["insurer"]
                run = ask(office, "insurer", study, model, "wrong", **asked)
                await asyncio.wait([asyncio.create_task(run.done.wait())], timeout=3)
                rows.loc[:, ["weight", "smokes"]].to_csv(tmp_path / "rows" / "insurer.csv", index=False)
                shown.append(json.dumps(office.agents["insurer"].show()))
                office.net.approve(study, runs=9)
                for each in (await office.run(study)).values():
                    assert each.error is not None
                    shown.append(json.dumps(each.show()))
            for name in list(office.agents):
                await office.stop(name)
            for path in (tmp_path / "sites").rglob("*"):
                if path.is_file():
                    assert not any(word in path.read_bytes() for word in (b"canary", b"4711.4711")), path

    bounded(test)
    assert not any(word in text for text in (*shown, caplog.text) for word in ("canary", "4711.4711"))


def test_what_was_asked_for_is_forgotten_at_the_end(tmp_path: Path) -> None:
    """Rows may be named by a URL with a password."""
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            await predict(office, study, model, split.ask(tmp_path, small(5)), "b")
            await office.stop("hospital")
            await office.start("hospital")
            home = office.net.sites["hospital"].home
            assert home.runs.outcome(prediction_run(study.sha256, model, "b")) is not None
            assert not list(home.folder.glob("runs/*/request.json"))

    bounded(test)


# -- releases ------------------------------------------------------------------------------------------------------------------


def test_classes_are_for_their_owner_and_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "classes.csv").write_text('"row","number","class"\n1,"0012","ill"\n2,"0013","well"\n')
    for name in ("out.csv", "out.parquet"):
        copy_classes(tmp_path / "classes.csv", tmp_path / name)
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
        with pytest.raises(FileExistsError):
            copy_classes(tmp_path / "classes.csv", tmp_path / name)
    found = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert found == {"row": [1, 2], "number": ["0012", "0013"], "class": ["ill", "well"]}


def test_nobody_else_on_the_machine_reads_a_sites_folder(tmp_path: Path) -> None:
    split = pair()
    mask = os.umask(0)
    try:

        async def test() -> None:
            async with trained(tmp_path, split) as (office, study, model):
                await predict(office, study, model, split.ask(tmp_path, small(5)), "b")
                for site in office.net.sites.values():
                    for path in site.home.folder.rglob("*"):
                        above = [each for each in path.parents if site.home.folder in each.parents]
                        closed = any(each.stat().st_mode & 0o077 == 0 for each in above)
                        public = path.name in ("card.toml", "certificate.pem") or path.parent.name == "peers"
                        if path.is_file() and not public:
                            assert closed or path.stat().st_mode & 0o077 == 0, path

        bounded(test)
    finally:
        os.umask(mask)


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Loopback, Path]:
    """Two sites with a release of one training run, and a copy of the first one's."""
    split = pair()
    found: dict[str, Any] = {}

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net)
            found["model"], found["net"] = await train(office, study), office.net

    bounded(test)
    net: Loopback = found["net"]
    folder = net.sites["hospital"].home.folder / "releases" / found["model"]
    return net, shutil.copytree(folder, tmp_path / "release")


def sign(folder: Path, net: Loopback, name: str) -> BaseException | None:
    return CliRunner().invoke(report_command, ["sign", str(folder), "--config", str(net.sites[name].home.folder)]).exception


def test_a_release_of_columns_is_signed_by_both(signed: tuple[Loopback, Path]) -> None:
    net, folder = signed
    assert sign(folder, net, "insurer") is None
    assert list(json.loads((folder / COMMON_SIGNATURES).read_text())) == ["hospital", "insurer"]


@pytest.mark.parametrize("way", ["/proc/self/cwd/{name}", "{absolute}", "{relative}", "../releases/{run}", "\x1b[2J"])
def test_a_made_up_run_does_not_lead_a_site_to_sign_a_forgery(
    signed: tuple[Loopback, Path], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The name of the run named the folder to compare with: the forgery itself, which then was found equal to itself."""
    net, folder = signed
    monkeypatch.chdir(folder.parent)
    files = {name: content for name, content in read_folder(folder).items() if name in ("study.toml", "run.json")}
    facts = json.loads(files["run.json"])
    home = net.sites["insurer"].home.folder
    words = {"name": "forged", "absolute": str(folder.parent / "forged"), "run": facts["run"]}
    words["relative"] = os.path.relpath(folder.parent / "forged", home / "releases")
    files["run.json"] = json.dumps({**facts, "run": way.format(**words)}).encode()
    key = {"hospital": net.sites["hospital"].identity.signing}  # a party may well forge, and signs what it made
    sealed = seal_files({**files, "model.json": b'{"forged": true}'}, key)
    del sealed[COMMON_SIGNATURES]
    forged = write_folder(folder.parent / "forged", sealed)
    problem = sign(forged, net, "insurer")
    assert isinstance(problem, DataError), problem
    assert "names no run" in str(problem)
    assert not (forged / COMMON_SIGNATURES).exists()


@pytest.mark.parametrize("change", ["changed", "added", "link", "missing", "unsigned"])
def test_a_folder_that_was_touched_is_not_signed(signed: tuple[Loopback, Path], change: str) -> None:
    net, folder = signed
    own = net.sites["insurer"].home.folder / "releases" / json.loads((folder / "run.json").read_text())["run"]
    before = (folder / COMMON_SIGNATURES).read_bytes()
    if change == "changed":
        (folder / "statement.md").write_text("Everything was opened.")
    elif change == "added":
        (folder / "model.json").write_text("{}")
    elif change == "link":
        (folder / "cost.json").unlink()
        (folder / "cost.json").symlink_to(own / "cost.json")
    elif change == "missing":
        (folder / "statement.md").unlink()
    else:  # its own folder, sealed anew without its signature: not what its agent wrote
        kept = {
            name: raw
            for name, raw in read_folder(own).items()
            if "sign" not in name and name not in ("checksums", "common.json")
        }
        shutil.rmtree(own)
        write_folder(own, seal_files(kept))
    assert isinstance(sign(folder, net, "insurer"), DataError | ConfigError)
    assert (folder / COMMON_SIGNATURES).read_bytes() == before


def test_a_release_of_classes_names_no_value_but_to_its_learner(tmp_path: Path) -> None:
    """reveal_to = one party: the other's release has no class, and run.json says model, batch and number alone."""
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, reveal_to="hospital")
            model = await train(office, study)
            rows = small(8, seed=2).assign(number=[f"canary-{at}" for at in range(8)])
            asked = split.ask(tmp_path, rows, number="number")
            asked["hospital"]["keep"] = asked["insurer"]["keep"] = ["number"]
            await predict(office, study, model, asked, "b")
            run_id = prediction_run(study.sha256, model, "b")
            assert classes(office.net, run_id, "hospital")["number"].tolist() == rows["number"].tolist()
            for name, site in office.net.sites.items():
                files = read_folder(site.home.folder / "releases" / run_id)
                assert list(verify_files(files).signers) == [name]
                facts = json.loads(files["run.json"])
                assert facts == {
                    "study": study.sha256,
                    "codebook": study.book.sha256,
                    "run": run_id,
                    "title": study.title,
                    "model": model,
                    "batch": "b",
                    "instances": 8,
                }
                telling = [path for path, raw in files.items() if b"canary" in raw]
                assert telling == (["classes.csv"] if name == "hospital" else [])
            insurer = office.net.sites["insurer"].home.folder
            assert not any(b"canary" in path.read_bytes() for path in insurer.rglob("*") if path.is_file())

    bounded(test)
