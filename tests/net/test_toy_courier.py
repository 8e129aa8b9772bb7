"""A newcomer's trial: a courier of another distribution, added as docs/architecture.md says; a study runs over it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from blindbayes import _extensions as extensions
from blindbayes.agent.config import AddedCourier, Carrier, SiteConfig
from blindbayes.agent.serve import make_courier
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.cli import main
from blindbayes.errors import ConfigError
from blindbayes.net.courier import Courier
from blindbayes.study.file import Deadlines
from support.sites import BOOK, Office, bounded, paper_policy

NAMES = ("north", "south", "west")
CODE = '''"""Frames as files in a folder that all sites share: a sneaker net that walks a hundred times a second."""

import asyncio
from pathlib import Path

from blindbayes.errors import PeerLost
from blindbayes.net.courier import Latency


class DropBox:
    def __init__(self, me, peers, place, latency):
        self.me, self.peers, self.place = me, set(peers), Path(place)
        self.latency = Latency(latency)
        self.sent = 0

    def _own(self, name):
        return self.place / name

    async def start(self, listener):
        self._own(self.me).mkdir(parents=True, exist_ok=True)
        self._task = asyncio.create_task(self._walk(listener))

    async def stop(self):
        self._own(self.me).rename(self.place / f".{self.me} has gone")
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def send(self, to, frame):
        if not self.is_up(to):
            raise PeerLost("no such box", party=to)
        self.sent += 1
        path = self._own(to) / f"{self.sent:09d} {self.me}"
        path.with_suffix(".part").write_bytes(frame)
        path.with_suffix(".part").rename(path)

    def is_up(self, peer):
        return peer in self.peers and self._own(peer).is_dir()

    def vouches(self, peer):
        return False  # whoever writes into the folder may say any name: the envelope proves it

    async def _walk(self, listener):
        up = set()
        while True:
            now = {peer for peer in self.peers if self.is_up(peer)}
            for peer in now - up:
                listener.peer_up(peer)
            for peer in up - now:
                listener.peer_down(peer)
            up = now
            for path in sorted(each for each in self._own(self.me).iterdir() if each.suffix != ".part"):
                listener.frame_arrived(path.name.split(" ")[1], path.read_bytes())
                path.unlink()
            await asyncio.sleep(0.01)


def courier(folder, identity, peers, *, place, latency="milliseconds"):
    return DropBox(identity.name, peers, place, latency)
'''


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution as pip leaves it."""
    package, facts = tmp_path / "library" / "toy_post", tmp_path / "library" / "toy_post-1.0.dist-info"
    package.mkdir(parents=True)
    facts.mkdir()
    (package / "__init__.py").write_text("")
    (package / "drop_box.py").write_text(CODE)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: toy_post\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[blindbayes.couriers]\ndrop-box = toy_post.drop_box\n")  # all that is touched
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    extensions.added.cache_clear()
    yield
    extensions.added.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_post"]:
        del sys.modules[name]


class AsConfigured:
    """Stands for a hub: each site's courier is the one that its site.toml names."""

    office: Office

    def courier(self, name: str) -> Courier:
        site = self.office.net.sites[name]
        return make_courier(SiteFolder.open(site.home.folder), site.identity)


def configure(office: Office, courier: AddedCourier) -> None:
    for site in office.net.sites.values():
        config = msgspec.structs.replace(site.home.config, listen=None, courier=courier)
        (site.home.folder / "site.toml").write_bytes(config.to_toml(site.identity.name))


def make_office(folder: Path, **options: str) -> Office:
    hub = AsConfigured()
    hub.office = Office(folder, NAMES, hub=hub, policy=paper_policy())  # type: ignore[arg-type]
    configure(hub.office, AddedCourier("drop-box", {"place": str(folder / "boxes"), **options}))
    return hub.office


@pytest.mark.usefixtures("stranger")
def test_a_study_runs_over_a_courier_that_another_distribution_adds(tmp_path: Path) -> None:
    async def test() -> None:
        async with make_office(tmp_path) as office:
            study = office.net.make_study(BOOK, deadlines=Deadlines(step=20, join=20, run=60))
            office.net.approve(study)
            runs = await office.run(study)
            assert {name: run.text() for name, run in runs.items()} == dict.fromkeys(NAMES, "done")
            assert {type(agent.router.courier).__name__ for agent in office.agents.values()} == {"DropBox"}
            sources = {name: office.net.sites[name].home.config.rows.source for name in NAMES}  # type: ignore[union-attr]
            expected = study.simulate(sources).files()["model.json"]
            assert {run.release and (run.release / "model.json").read_bytes() for run in runs.values()} == {expected}

    bounded(test)


@pytest.mark.usefixtures("stranger")
def test_what_it_says_of_its_latency_counts(tmp_path: Path) -> None:
    async def test() -> None:
        async with make_office(tmp_path, latency="seconds") as office:
            study = office.net.make_study(BOOK, protocol="ring_sum", deadlines=Deadlines(step=20, join=20, run=60))
            office.net.approve(study)
            with pytest.raises(ConfigError, match="ring_sum sends too many messages"):
                office.agents["north"].begin(study.sha256)

    bounded(test)


@pytest.mark.usefixtures("stranger")
def test_a_courier_that_nobody_adds_is_refused_with_those_that_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    office = make_office(tmp_path)
    configure(office, AddedCourier("pigeons"))
    with pytest.raises(SystemExit) as stopped:
        main(["site", "serve", "--config", str(office.net.sites["north"].home.folder)])
    assert stopped.value.code == ConfigError("").code
    assert "no installed package adds 'pigeons' to blindbayes.couriers; known: drop-box" in capsys.readouterr().err


@pytest.mark.usefixtures("stranger")
def test_an_option_that_it_does_not_take_is_refused_with_those_that_it_takes(tmp_path: Path) -> None:
    office = make_office(tmp_path, plaze="elsewhere")
    with pytest.raises(ConfigError, match="'plaze': the courier 'drop-box' takes place"):
        make_courier(SiteFolder.open(office.net.sites["north"].home.folder), office.net.sites["north"].identity)


def test_one_way_for_frames_is_enough() -> None:
    with pytest.raises(ConfigError, match=r"with \[courier\] a package carries all frames"):
        SiteConfig(listen="127.0.0.1:1", courier=AddedCourier("drop-box"))
    with pytest.raises(ConfigError, match=r"with \[carrier\] an engine carries all frames"):
        SiteConfig(carrier=Carrier(), courier=AddedCourier("drop-box"))
