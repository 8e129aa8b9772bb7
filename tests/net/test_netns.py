"""Three hosts: network namespaces where the machine allows them, with latency and loss where its kernel has netem."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blindbayes.study.file import Deadlines
from blindbayes.testing.loopback import Loopback
from support.sites import BOOK, make_rows

NAMES = ("north", "south", "west")
TAG = f"bb{os.getpid() % 10000}"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts(tool: Callable[[str], str]) -> Iterator[dict[str, str]]:
    """One namespace per site on one bridge; 20 ms and 1 % loss each way if the kernel can; addresses by site."""
    tool("ip")
    tool("tc")
    made: list[str] = []
    try:
        try:
            ip("netns", "add", f"{TAG}-hub")
            made.append(f"{TAG}-hub")
            ip("-n", f"{TAG}-hub", "link", "add", "br0", "type", "bridge")
            ip("-n", f"{TAG}-hub", "link", "set", "br0", "up")
            for number, name in enumerate(NAMES, 1):
                space = f"{TAG}-{name}"
                ip("netns", "add", space)
                made.append(space)
                ip("-n", space, "link", "set", "lo", "up")
                ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"v{number}", "netns", f"{TAG}-hub")
                ip("-n", f"{TAG}-hub", "link", "set", f"v{number}", "master", "br0", "up")
                ip("-n", space, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
                ip("-n", space, "link", "set", "eth0", "up")
                netem = ["tc", "-n", space, "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "20ms", "loss", "1%"]
                subprocess.run(netem, check=False, capture_output=True)
        except (subprocess.CalledProcessError, PermissionError):
            pytest.skip("this machine allows no network namespaces")
        yield {name: f"10.77.0.{number}:7440" for number, name in enumerate(NAMES, 1)}
    finally:
        for space in made:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", space)


@pytest.mark.slow
def test_three_hosts_and_a_cable_that_is_pulled(hosts: dict[str, str], tmp_path: Path) -> None:
    net = Loopback(tmp_path / "sites", make_rows(tmp_path, NAMES), addresses=hosts)
    study = net.make_study(BOOK, deadlines=Deadlines(step=40, join=60, run=120))
    net.approve(study)
    (tmp_path / "study.toml").write_text(study.to_toml())
    try:
        for name, site in net.sites.items():
            site.launch(prefix=("ip", "netns", "exec", f"{TAG}-{name}"))
        for site in net.sites.values():
            site.wait_ready()
        blindbayes = str(Path(sys.executable).parent / "blindbayes")
        command = ["ip", "netns", "exec", f"{TAG}-north", blindbayes, "study", "run"]
        options = [str(tmp_path / "study.toml"), "--config", str(net.sites["north"].home.folder), "--json"]
        ip("-n", f"{TAG}-west", "link", "set", "eth0", "down")  # the connections of west are half open now
        running = subprocess.Popen([*command, *options], stdout=subprocess.PIPE)
        time.sleep(4)
        ip("-n", f"{TAG}-west", "link", "set", "eth0", "up")
        output, _ = running.communicate(timeout=120)
        ended = json.loads(output)
        assert (running.returncode, ended.get("message", ended["state"])) == (0, "done")
        until = time.monotonic() + 20
        outcomes = {}
        while len(outcomes) < 3 and time.monotonic() < until:
            found = {name: site.home.runs.outcome(ended["run"]) for name, site in net.sites.items()}
            outcomes = {name: outcome["state"] for name, outcome in found.items() if outcome is not None}
            time.sleep(0.1)
        assert outcomes == dict.fromkeys(NAMES, "done")
        models = {(site.home.folder / "releases" / ended["run"] / "model.json").read_text() for site in net.sites.values()}
        sources = {name: site.home.config.rows.source for name, site in net.sites.items()}  # type: ignore[union-attr]
        assert models == {(study.study.simulate(sources).save(tmp_path / "simulated") / "model.json").read_text()}
    finally:
        net.stop()


@pytest.fixture
def wards(tool: Callable[[str], str]) -> Iterator[str]:
    """One namespace per hospital, each with a cable to the relay's machine alone; the relay's address."""
    tool("ip")
    made: list[str] = []
    hub = f"{TAG}-relay"
    try:
        try:
            ip("netns", "add", hub)
            made.append(hub)
            ip("-n", hub, "link", "set", "lo", "up")
            ip("-n", hub, "addr", "add", "10.99.0.1/32", "dev", "lo")
            for number, name in enumerate(NAMES, 1):
                space = f"{TAG}-{name}"
                ip("netns", "add", space)
                made.append(space)
                ip("-n", space, "link", "set", "lo", "up")
                ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"w{number}", "netns", hub)
                ip("-n", hub, "addr", "add", f"10.78.{number}.1/30", "dev", f"w{number}")
                ip("-n", hub, "link", "set", f"w{number}", "up")
                ip("-n", space, "addr", "add", f"10.78.{number}.2/30", "dev", "eth0")
                ip("-n", space, "link", "set", "eth0", "up")
                ip("-n", space, "route", "add", "10.99.0.1/32", "via", f"10.78.{number}.1")
        except (subprocess.CalledProcessError, PermissionError):
            pytest.skip("this machine allows no network namespaces")
        yield "10.99.0.1:7450"
    finally:
        for space in made:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", space)


@pytest.mark.slow
def test_hospitals_that_reach_nothing_but_the_relay_run_a_study(wards: str, tmp_path: Path) -> None:
    addresses = {name: f"10.78.{number}.2:7440" for number, name in enumerate(NAMES, 1)}
    net = Loopback(tmp_path / "sites", make_rows(tmp_path, NAMES), addresses=addresses)
    blindbayes = str(Path(sys.executable).parent / "blindbayes")
    relay = tmp_path / "relay"
    subprocess.run([blindbayes, "relay", "init", str(relay), "--name", "relay", "--address", wards], check=True, timeout=60)
    for site in net.sites.values():
        card, words = str(site.home.folder / "card.toml"), site.identity.card.words
        subprocess.run([blindbayes, "relay", "pin", str(relay), card, "--words", words], check=True, timeout=60)
        others = [name for name in NAMES if name != site.name]
        text = (site.home.folder / "site.toml").read_text()
        kept = "\n".join(line for line in text.splitlines() if not line.startswith("listen"))
        (site.home.folder / "site.toml").write_text(f'{kept}\n[relay]\ncard = "{relay / "card.toml"}"\nsites = {others}\n')
    study = net.make_study(BOOK, deadlines=Deadlines(step=40, join=60, run=120))
    net.approve(study)
    (tmp_path / "study.toml").write_text(study.to_toml())
    inside = ["ip", "netns", "exec", f"{TAG}-north"]
    ways = [["ip", "-n", f"{TAG}-north", "route", "get", place] for place in (wards.partition(":")[0], "10.78.2.2")]
    found = [subprocess.run(way, capture_output=True, check=False).returncode == 0 for way in ways]
    assert found == [True, False]  # to the relay, and to no other hospital
    serving = [blindbayes, "relay", "serve", str(relay), "--listen", "0.0.0.0:7450"]
    carrying = subprocess.Popen(["ip", "netns", "exec", f"{TAG}-relay", *serving])
    try:
        for name, site in net.sites.items():
            site.launch(prefix=("ip", "netns", "exec", f"{TAG}-{name}"))
        for site in net.sites.values():
            site.wait_ready()
        options = [str(tmp_path / "study.toml"), "--config", str(net.sites["north"].home.folder), "--json"]
        done = subprocess.run([*inside, blindbayes, "study", "run", *options], capture_output=True, timeout=150, check=False)
        ended = json.loads(done.stdout)
        assert (done.returncode, ended.get("message", ended["state"])) == (0, "done")
    finally:
        net.stop()
        carrying.terminate()
        carrying.wait(10)
