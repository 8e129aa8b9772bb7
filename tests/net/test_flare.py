"""Studies over a real NVIDIA FLARE: one server and three sites with mutual TLS on this machine, agents as processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from blindbayes.agent.config import Carrier, Rows, SiteConfig
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.study.file import Deadlines, StudyFile
from blindbayes.study.tasks.prediction import prediction_run
from blindbayes.testing.loopback import Loopback, open_policy
from support.column_sites import Split, classes, joined, small
from support.engines import until
from support.flare import Flare

SPLIT = Split(small(), "class", {"north": ("age", "colour"), "south": ("weight",), "west": ("smokes",)}, ("north",))
NAMES = tuple(SPLIT.holds)
IN_ENGINE = {"north": "site-1", "south": "site-2", "west": "site-3"}
EASY = open_policy(max_runs_per_day=1000, min_cell=0)


def sites(folder: Path, *, latency: str | None = None, short: Path | None = None) -> Loopback:
    """Three sites that all have the whole table: over rows they count it three times, over columns each reads its own part.
    With a latency an engine carries their frames, by sockets in the folder `short`."""
    folder.mkdir(parents=True)
    SPLIT.frame.to_csv(folder / "table.csv", index=False)
    net = Loopback(folder / "sites", dict.fromkeys(NAMES, str(folder / "table.csv")), policy=EASY)
    for name, site in net.sites.items():
        others = {other: engine for other, engine in IN_ENGINE.items() if other != name}
        carrier = None if latency is None else Carrier(f"{short}/{name}", latency, others)  # type: ignore[arg-type]
        listen = site.home.config.listen if carrier is None else None
        rows = Rows(str(folder / "table.csv"), extra_columns="ignore")
        config = SiteConfig(listen=listen, operator="127.0.0.1:0", rows=rows, policy=EASY, carrier=carrier)
        (site.home.folder / "site.toml").write_bytes(config.to_toml(name))
        site.home = SiteFolder.open(site.home.folder)
    return net


def sockets_of(net: Loopback) -> dict[str, Path]:
    """Where the engine's process meets each agent, by the engine's names."""
    carriers = {IN_ENGINE[name]: site.home.config.carrier for name, site in net.sites.items()}
    return {name: Path(carrier.socket) for name, carrier in carriers.items() if carrier is not None}


def rows_study(net: Loopback) -> StudyFile:
    study = net.make_study(SPLIT.book, deadlines=Deadlines(step=40, join=60, run=120))
    net.approve(study, runs=100)
    return study


def run(net: Loopback, study: StudyFile) -> tuple[str, float]:
    """A run that ends well at all sites; its name and seconds."""
    begun = time.perf_counter()
    ended = net.run(study)
    assert {name: each.get("message", each["state"]) for name, each in ended.items()} == dict.fromkeys(NAMES, "done")
    return next(iter(ended.values()))["run"], time.perf_counter() - begun


def model_of(net: Loopback, run_id: str) -> bytes:
    found = {(site.home.folder / "releases" / run_id / "model.json").read_bytes() for site in net.sites.values()}
    assert len(found) == 1
    return found.pop()


def all_up(net: Loopback) -> bool:
    states: list[Mapping[str, bool]] = [site.operator.call("GET", "/status")["peers"] for site in net.sites.values()]
    return all(all(state.values()) for state in states)


def simulated(net: Loopback, study: StudyFile, folder: Path) -> bytes:
    """The model of the same study in this process."""
    tables = {name: site.home.config.rows.source for name, site in net.sites.items() if site.home.config.rows is not None}
    study.simulate(tables).save(folder)
    return (folder / "model.json").read_bytes()


@pytest.mark.slow
@pytest.mark.daily
@pytest.mark.timeout(300)
def test_a_sum_ends_over_a_real_federation_in_the_bytes_of_one_process(tmp_path: Path, short: Path) -> None:
    carried = sites(tmp_path / "carried", latency="milliseconds", short=short)
    with Flare(tmp_path / "flare", sockets_of(carried)) as flare, carried:
        flare.submit()
        until("all agents see each other through FLARE", lambda: all_up(carried), 90)
        study = rows_study(carried)
        assert model_of(carried, run(carried, study)[0]) == simulated(carried, study, tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rows_and_columns_over_a_real_federation_a_dead_site_and_the_end(tmp_path: Path, short: Path) -> None:
    direct, carried = sites(tmp_path / "direct"), sites(tmp_path / "carried", latency="milliseconds", short=short)
    sockets = sockets_of(carried)
    with Flare(tmp_path / "flare", sockets) as flare, direct, carried:
        flare.submit()
        until("all agents see each other through FLARE", lambda: all_up(carried), 90)

        # over rows: the same bytes, in a time of the same order
        studies = {net: rows_study(net) for net in (direct, carried)}
        runs = {net: [run(net, studies[net])[0]] for net in studies}  # agents import their libraries in the first
        seconds: dict[Loopback, list[float]] = {net: [] for net in studies}
        for _ in range(3):
            for net in studies:
                seconds[net].append(run(net, studies[net])[1])
        assert model_of(carried, runs[carried][0]) == model_of(direct, runs[direct][0])
        plain, engine = (statistics.median(seconds[net]) for net in (direct, carried))
        print(f"rows: direct {plain:.2f} s, over FLARE {engine:.2f} s")
        assert engine <= 5 * plain + 1

        # over columns: training, then classification, equal to pooled training
        study = SPLIT.study(carried)
        carried.approve(study)
        model, took = run(carried, study)
        pooled = SPLIT.pooled()
        assert joined(carried, model).statistics() == pooled.statistics_
        rows = small(40, seed=3)
        begun = time.perf_counter()
        ended = carried.predict(study, model, "monday", SPLIT.ask(tmp_path, rows))
        assert {each["state"] for each in ended.values()} == {"done"}, ended
        print(f"columns: training {took:.2f} s, classification {time.perf_counter() - begun:.2f} s")
        told = classes(carried, prediction_run(study.sha256, model, "monday"), "north")["class"].tolist()
        assert told == pooled.predict(rows[SPLIT.features]).tolist()

        # the engine dies at one site: nobody waits for FLARE to notice
        study = SPLIT.study(carried, title="a site dies", deadlines=Deadlines(step=5, join=60, run=120))
        carried.approve(study)
        left = carried.sites["north"].operator
        first = left.call("POST", "/runs", {"study": study.sha256})
        log = carried.sites["north"].home.audit
        begins = ("computing", first["run"])
        until("it computes", lambda: begins in [(entry["event"], entry.get("run")) for entry in log.entries()], 60)
        flare.kill("site-3")
        begun = time.perf_counter()
        ended_run = left.follow(first, None)
        assert ended_run["state"] == "failed", ended_run
        assert "west" in ended_run["message"]
        print(f"a dead site was named after {time.perf_counter() - begun:.1f} s: {ended_run['message']}")

        # the end
        assert "ABORTED" in flare.end()
        until("the agents see that nobody carries", lambda: not any_up(carried), 30)

    # no log of a site came to the server
    at_server = [path for path in (tmp_path / "flare").rglob("*log*") if any(each in path.name for each in sockets)]
    kept = [path for path in (flare.kits / "localhost", tmp_path / "flare" / "kept") for path in path.rglob("*")]
    assert not [path for path in kept if any(site in path.name for site in sockets) and "log" in path.name.lower()]
    assert {path.parent for path in at_server} <= {tmp_path / "flare"}  # what the test itself wrote down
    assert not any("Started completed error log upload" in flare.processes.log(site) for site in sockets)


def any_up(net: Loopback) -> bool:
    return any(any(site.operator.call("GET", "/status")["peers"].values()) for site in net.sites.values())
