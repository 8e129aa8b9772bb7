"""Material made before the instances come, at agents: used once, by both sites or by neither, within the disk it is given."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blindbayes.errors import BlindbayesError, ConfigError, IntegrityError, LocalProtocolError
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.shared_argmax import ahead as roles
from blindbayes.scheme.ahead import ahead_of, ahead_run
from blindbayes.scheme.prediction import prediction_run
from blindbayes.site import ahead as store
from blindbayes.site import backup, idle
from blindbayes.site.ahead import AheadFolder
from blindbayes.site.audit_log import AuditLog
from blindbayes.site.runs import RunFolders
from support.column_sites import Split, classes, errors, pair, predict, small, trained
from support.sites import Office, bounded

THREE = Split(small(), "class", {"hospital": ("age",), "insurer": ("weight", "smokes"), "lab": ("colour",)}, ("hospital",))


async def prepare(office: Office, model: str, size: int, by: str = "hospital") -> str:
    run = office.agents[by].precompute(model, size)
    await run.done.wait()
    ended = await office.ended(run.run_id)
    assert {name: each.text() for name, each in ended.items()} == dict.fromkeys(office.agents, "done")
    return run.run_id


def ready(office: Office) -> dict[str, int]:
    return {name: len(agent.home.ahead.packs()) for name, agent in office.agents.items()}


def cost(office: Office, run_id: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((office.net.sites[name].home.folder / "releases" / run_id / "cost.json").read_text())
    return found


@pytest.mark.parametrize("split", [pair(), THREE], ids=["two", "three"])
@pytest.mark.parametrize(
    "options", [{}, {"audit_rate": 0.2}, {"comparison": "transfers"}], ids=["plain", "audited", "by transfers"]
)
def test_a_batch_uses_what_was_made_and_nothing_is_left_of_it(tmp_path: Path, split: Split, options: dict[str, Any]) -> None:
    async def test() -> None:
        async with trained(tmp_path, split, options={"queries": 1000, **options}) as (office, study, model):
            made = await prepare(office, model, 30)
            pairs = len(split.holds) - 1
            assert ready(office) == {name: pairs if name == "hospital" else 1 for name in split.holds}
            sent = {}
            for batch in ("first", "second"):  # the second finds nothing left
                asked = split.ask(tmp_path, small(25, seed=3), batch)
                assert errors(await predict(office, study, model, asked, batch)) == dict.fromkeys(split.holds)
                run_id = prediction_run(study.sha256, model, batch)
                expected = split.pooled().predict(small(25, seed=3)[split.features]).tolist()
                for name in split.holds:
                    assert classes(office.net, run_id, name)["class"].tolist() == expected
                told = cost(office, run_id, "hospital")
                sent[batch] = sum(cost(office, run_id, name)["bytes"] for name in split.holds)
                assert ("hospital" in told["ahead"]) == (batch == "first")
                if batch == "first":
                    facts = told["ahead"]["hospital"]
                    assert set(facts["made_by"].values()) == {made}
                    assert facts["cpu_seconds"] > 0
                    assert facts["bytes"] > told["bytes"]
            assert sent["first"] < 0.6 * sent["second"]
            assert set(ready(office).values()) == {0}
            for site in office.net.sites.values():
                assert not list(site.home.folder.glob("runs/*/ahead.*"))
                assert len(site.home.audit.of("event", store.USED)) == (pairs if site.name == "hospital" else 1)
            assert not list(tmp_path.glob("sites/*/releases/" + made))  # nothing is released by making it

    bounded(test, 60)


def test_a_run_that_was_interrupted_goes_on_with_its_own_material(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            await prepare(office, model, 300)
            asked = split.ask(tmp_path, small(300, seed=3))
            begun = {
                name: agent.predict(study.sha256, {"model": model, "batch": "monday", **asked[name]})
                for name, agent in office.agents.items()
            }
            run, home = begun["hospital"], office.net.sites["hospital"].home
            while not (home.runs.folder(run.run_id) / "ahead.insurer").exists():
                await asyncio.sleep(0)
            await office.stop("hospital")
            assert home.runs.outcome(run.run_id) is None, "it was done before it was stopped"
            await office.start("hospital")
            assert errors(await office.ended(run.run_id)) == {"hospital": None, "insurer": None}
            expected = split.pooled().predict(small(300, seed=3)[split.features]).tolist()
            assert classes(office.net, run.run_id, "hospital")["class"].tolist() == expected
            assert "hospital" in cost(office, run.run_id, "hospital")["ahead"]
            assert ready(office) == {"hospital": 0, "insurer": 0}

    bounded(test, 60)


def test_what_one_side_lacks_neither_uses_and_a_pack_that_comes_back_is_not_offered(tmp_path: Path) -> None:
    """A folder restored from a copy: the log knows what was used; and if the log is the old one too, the other site does."""
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            await prepare(office, model, 30)
            for name in office.agents:
                folder = office.net.sites[name].home.folder
                shutil.copytree(folder / "ahead", tmp_path / f"copy-{name}")
            asked = split.ask(tmp_path, small(25, seed=3))
            await predict(office, study, model, asked, "first")
            for name in office.agents:
                folder = office.net.sites[name].home.folder
                shutil.rmtree(folder / "ahead")
                shutil.copytree(tmp_path / f"copy-{name}", folder / "ahead")
            assert ready(office) == {"hospital": 0, "insurer": 0}
            await predict(office, study, model, asked, "second")
            insurer = office.net.sites["insurer"].home.ahead
            insurer.audit = AuditLog(tmp_path / "empty.log")  # it forgot
            assert ready(office) == {"hospital": 0, "insurer": 1}
            assert errors(await predict(office, study, model, asked, "third")) == {"hospital": None, "insurer": None}
            for batch in ("second", "third"):
                assert cost(office, prediction_run(study.sha256, model, batch), "insurer")["ahead"] == {}

    bounded(test, 60)


def test_a_pack_serves_its_own_model_and_its_own_pair(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, runs=2) as (office, study, model):
            other = (await office.run(study))["hospital"].run_id
            await prepare(office, model, 30)
            asked = split.ask(tmp_path, small(25, seed=3))
            await predict(office, study, other, asked, "first")
            assert cost(office, prediction_run(study.sha256, other, "first"), "hospital")["ahead"] == {}
            assert ready(office) == {"hospital": 1, "insurer": 1}
            await predict(office, study, model, split.ask(tmp_path, small(31, seed=3)), "large")  # one instance too many
            assert ready(office) == {"hospital": 1, "insurer": 1}
            await office.stop("hospital")
            home = office.net.sites["hospital"].home
            for path in home.ahead.packs():
                path.rename(path.with_name(path.name.replace("insurer", "lab")))
            await office.start("hospital")  # a pack under another name cannot be opened, and is gone
            assert ready(office) == {"hospital": 0, "insurer": 1}
            home.shares.destroy(model)
            office.net.sites["insurer"].home.shares.destroy(model)
            assert ready(office) == {"hospital": 0, "insurer": 0}

    bounded(test, 60)


def test_a_tampered_record_ends_the_run_and_the_pack_is_gone(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            await prepare(office, model, 30)
            (pack,) = office.net.sites["insurer"].home.ahead.packs()
            raw = bytearray((pack / "records").read_bytes())
            raw[-1] ^= 1
            (pack / "records").write_bytes(raw)
            ended = await predict(office, study, model, split.ask(tmp_path, small(25, seed=3)))
            assert isinstance(ended["insurer"].error, IntegrityError)
            assert ready(office) == {"hospital": 0, "insurer": 0}
            assert not list(tmp_path.glob("sites/*/runs/*/ahead.*"))

    bounded(test, 60)


def test_there_is_a_bound_on_disk_and_none_of_it_is_readable(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, _, model):
            home = office.net.sites["hospital"].home
            home.config = msgspec.structs.replace(home.config, ahead_mb=1)
            run = office.agents["hospital"].precompute(model, 100_000)
            await run.done.wait()
            assert isinstance(run.error, ConfigError)
            assert "ahead_mb" in str(run.error)
            while home.ahead.show(1)["bytes"] < 700_000:
                await prepare(office, model, 60)
            assert home.ahead.show(1)["bytes"] <= 1 << 20
            run = office.agents["hospital"].precompute(model, 600)
            await run.done.wait()
            assert isinstance(run.error, ConfigError)
            home.config = msgspec.structs.replace(home.config, ahead_mb=0)
            other = office.agents["insurer"].precompute(model, 60)
            await other.done.wait()
            assert isinstance(other.error, BlindbayesError)
            offset = b""
            for path in home.ahead.packs():
                assert (path / "key").stat().st_mode & 0o077 == 0
                assert (path / "records").stat().st_mode & 0o077 == 0
                head = store._head(path, office.net.sites["hospital"].identity.storage_key)
                assert head is not None
                record = store.FolderRecords(path / "records", head).read(0)
                offset = record[32:48]
                assert offset not in (path / "records").read_bytes()
            assert offset
            out = tmp_path / "backup"
            backup.backup(home, out, "a long passphrase")
            backup.restore(out, tmp_path / "back", "a long passphrase")
            assert not (tmp_path / "back" / "ahead").exists()
            assert home.ahead.burn() > 0
            assert ready(office)["hospital"] == 0

    bounded(test, 90)


def test_an_idle_agent_keeps_material_ready_and_rests_where_the_other_deviates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "PAUSE", 0.05)
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            for name in office.agents:
                home = office.net.sites[name].home
                home.config = msgspec.structs.replace(home.config, ahead_batches=(1, 1, 20))
            while ready(office) != {"hospital": 3, "insurer": 3}:
                await asyncio.sleep(0.01)
            shown = office.agents["insurer"].show()["ahead"]
            assert shown["ready"] == {model: {"1": 2, "20": 1}}
            await predict(office, study, model, split.ask(tmp_path, small(1, seed=3)))
            while ready(office) != {"hospital": 3, "insurer": 3}:
                await asyncio.sleep(0.01)

            real = roles.make_as_chooser

            def flipped(run: Any, other: str, shape: Any, keep: Any, coins: Any, gates: int) -> Any:
                effect = real(run, other, shape, keep, coins, gates)
                value = None
                while True:
                    try:
                        found = effect.send(value)
                    except StopIteration as stop:
                        return stop.value
                    message = getattr(found, "message", None)
                    if type(message).__name__ == "AheadChosen":
                        corrections = message.corrections.copy()
                        corrections[0] ^= 1
                        found = type(found)(found.to, type(message)(message.mark, corrections))
                    value = yield found

            monkeypatch.setattr(roles, "make_as_chooser", flipped)
            await predict(office, study, model, split.ask(tmp_path, small(1, seed=3)), "tuesday")
            while not any(isinstance(run.error, IntegrityError) for run in office.agents["hospital"].runs.values()):
                await asyncio.sleep(0.01)
            count = len(office.agents["hospital"].home.audit.of("event", "joined"))
            for _ in range(30):
                await asyncio.sleep(0.01)
            assert len(office.agents["hospital"].home.audit.of("event", "joined")) == count  # not tried again
            assert ready(office) == {"hospital": 2, "insurer": 2}

    bounded(test, 60)


# -- single use through kill -9 ------------------------------------------------------------------------------------------


KEY = bytes(32)


def folder_at(path: Path) -> AheadFolder:
    return AheadFolder(path / "ahead", RunFolders(path / "runs"), AuditLog(path / "audit.log"))


def shelf(path: Path) -> store.FolderShelf:
    return store.FolderShelf(folder_at(path), KEY, 10 << 20)


def make_pack(path: Path, made: str) -> bytes:
    draft = shelf(path).draft(made, "other", b"facts", 10_000)
    draft.write(b"record 0")
    draft.keep(b"n" * 32)
    return b"n" * 32


def killed_after(steps: int, work: Any) -> bool:
    """Whether the process was killed, before the file operation of that number."""
    pid = os.fork()
    if pid == 0:
        left = [steps]

        def counted(real: Any) -> Any:
            def call(*given: Any, **named: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given, **named)

            return call

        for name in ("fsync", "fdatasync", "rename", "replace", "open", "write", "unlink", "mkdir"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def test_whenever_a_site_is_killed_two_runs_never_get_one_pack(tmp_path: Path) -> None:
    one, two = "1" * 64, "2" * 64
    made, deaths = ahead_run("a" * 32, 5, Coins.system()), 0
    assert ahead_of(made) == ("a" * 32, 5)
    for steps in range(60):
        path = tmp_path / str(steps)
        name = make_pack(path, made)

        def work(path: Path = path, name: bytes = name) -> None:
            assert shelf(path).offered(one, "other", b"facts", 5) == [name]
            assert shelf(path).take(one, "other", name)[1].read(0) == b"record 0"
            (path / "sent").touch()  # from here on the other site may have seen something of it

        died = killed_after(steps, work)
        deaths += died
        home = folder_at(path)
        home.tidy(KEY)
        offered = shelf(path).offered(two, "other", b"facts", 5)
        if (path / "sent").exists() or home.used():
            assert offered == []
            with pytest.raises(LocalProtocolError):
                shelf(path).take(two, "other", name)
            if (path / "runs" / one / "ahead.other").exists():  # the run itself, taken up again, finds it
                assert shelf(path).take(one, "other", name)[1].read(0) == b"record 0"
        if not died:
            break
    assert deaths > 8


def test_a_draft_that_was_never_finished_is_nothing(tmp_path: Path) -> None:
    made, deaths = ahead_run("a" * 32, 5, Coins.system()), 0
    for steps in range(60):
        path = tmp_path / str(steps)
        died = killed_after(steps, lambda path=path: make_pack(path, made))
        deaths += died
        home = folder_at(path)
        home.tidy(KEY)
        for pack in home.packs():
            assert store._head(pack, KEY) is not None
        assert [each.name for each in (path / "ahead").glob("*")] == [each.name for each in home.packs()]
        if not died:
            assert len(home.packs()) == 1
            break
    assert deaths > 4
