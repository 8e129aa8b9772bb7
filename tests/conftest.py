"""What every test may ask for: the papers' datasets, and a missing tool that skips here and fails in CI.

Temporary folders lie in memory where there is room; with PYTEST_DEBUG_TEMPROOT=/tmp they lie on a disk.

`--tenth` keeps a tenth of the slow tests, another one every day, and those that are `daily`, and lets no further one begin
after `--tenth-seconds`: so none of them rots, and `make test` stays short. BLINDBAYES_TENTH=0..9 names one.

Random numbers follow from a test's name (`--coins`): what passed passes again. See support/repeat.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from blindbayes.testing.loopback import Loopback
from support import programs
from support.forked import ForkedSite
from support.light_backups import make_light
from support.memory import folder_in_memory
from support.papers import offer_papers
from support.reference import offer_reference
from support.repeat import drawn_from


def pytest_configure(config: pytest.Config) -> None:
    again = config.getoption("--coins") != "system"
    patient = [HealthCheck.too_slow]  # a busy machine is no fault
    settings.register_profile("loaded", deadline=None, suppress_health_check=patient, derandomize=again)
    settings.load_profile("loaded")
    beside = Path(config.rootpath).parent / "shared" / "data"
    if "BLINDBAYES_DATA" not in os.environ and beside.is_dir():
        os.environ["BLINDBAYES_DATA"] = str(beside)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every agent that a test starts would compile the package again
    sys.dont_write_bytecode = False
    Loopback.site_type = ForkedSite
    offer_reference()
    offer_papers(Path(config.rootpath) / ".pytest_cache" / "papers")
    if place := folder_in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", place)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` means: half as many again as there are cores, since agents and browsers wait more than they compute."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--coins", default="1", help="what random numbers follow from, with the test's name; system: fresh ones")
    parser.addoption("--tenth", action="store_true", help="a tenth of the slow tests, another one every day")
    parser.addoption("--tenth-seconds", type=float, default=60.0, help="with --tenth: let no further test begin after that")


def tenth_of_today() -> int:
    """Which tenth it is."""
    named = os.environ.get("BLINDBAYES_TENTH")
    return int(named) % 10 if named else datetime.now(UTC).date().toordinal() % 10


def tenth_of(name: str) -> int:
    """The tenth that a test belongs to, for ever: by its name."""
    return hashlib.sha256(name.encode()).digest()[0] * 10 // 256


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.getoption("--tenth"):
        return None
    return f"tenth {tenth_of_today()} of the slow tests; another one: BLINDBAYES_TENTH=0..9, all: make test-slow"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--tenth"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    kept = [item for item in slow if item.get_closest_marker("daily") or tenth_of(item.nodeid) == tenth_of_today()]
    week = datetime.now(UTC).date().toordinal() // 10  # who came last, and found the time used up, comes sooner in ten days
    chance = {item: hashlib.sha256(f"{week} {item.nodeid}".encode()).digest() for item in kept}
    kept.sort(key=lambda item: (not item.get_closest_marker("daily"), chance[item]))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


_BEGAN: list[float] = []  # when the first test of this process began: collecting them does not count


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.getoption("--tenth"):
        _BEGAN.append(time.monotonic())
        if _BEGAN[-1] - _BEGAN[0] > item.config.getoption("--tenth-seconds"):
            pytest.skip("the time for a tenth of the slow tests is used up; `make test-slow` runs them all")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with random_numbers(item.config, item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[None]:
    if fixturedef.scope == "function":
        return (yield)
    with random_numbers(request.config, f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"):
        return (yield)


def random_numbers(config: pytest.Config, name: str) -> contextlib.AbstractContextManager[None]:
    """A test's, or a fixture's: see support/repeat.py."""
    chosen = config.getoption("--coins")
    return contextlib.nullcontext() if chosen == "system" else drawn_from(f"{chosen} {name}")


@pytest.fixture(scope="session")
def dataset() -> Callable[[str], Path]:
    """Path of a paper's dataset by name: in BLINDBAYES_DATA, or a small one that the papers' package contains."""
    packaged = Path(__file__).parents[1] / "papers" / "blindbayes_papers" / "data"

    def find(name: str) -> Path:
        for folder in (os.environ.get("BLINDBAYES_DATA"), packaged):
            if folder and (path := Path(folder) / f"{name}.csv").is_file():
                return path
        programs.refuse(f"dataset {name} is not in BLINDBAYES_DATA")
        raise AssertionError

    return find


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Path of a program by name."""
    packages = {"java": "default-jre-headless", "ip": "iproute2", "tc": "iproute2"}
    return lambda name: programs.require(name, packages.get(name, name))


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a browser."""
    return programs.require_browser()


@pytest.fixture
def light_backups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backups whose passphrase costs nothing."""
    make_light(monkeypatch)
