"""A site is made in a page, without a terminal beyond the command that serves it, and joins from an invitation."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from blindbayes.agent.config import SiteConfig
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.console.first_run import Answers, FirstRun, require_free
from blindbayes.console.invitations import invitation_of
from blindbayes.errors import ConfigError
from blindbayes.net.identity import Identity

from .conftest import require_fit


def test_a_newcomer_makes_a_site_from_an_invitation_and_pins_who_invited(tmp_path: Path, browser: Browser) -> None:
    south = Identity.generate("south", address="south.example:7440").card
    (tmp_path / "visits.csv").write_text("class,colour\nill,red\n")
    command = [sys.executable, "-m", "blindbayes", "site", "console", "--config", str(tmp_path / "north"), "--for", "Ada"]
    with subprocess.Popen([*command, "--operator", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            code = process.stdout.readline().split()[-1]
            page = browser.new_page()
            page.set_default_timeout(60_000)
            errors: list[str] = []
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.goto(url)
            page.get_by_label("One-time code").fill(code)
            page.get_by_role("button", name="Sign in").click()
            require_fit(page, "first-run")
            page.get_by_label("Name of the site").fill("north")
            page.get_by_text("Name a file or database now").click()
            page.get_by_label("Table").fill("visits.csv")
            page.get_by_role("button", name="Create the site").click()
            page.get_by_text("a relative path counts from the new site's folder").wait_for()
            assert not (tmp_path / "north").exists()
            page.get_by_label("Table").fill("")
            for typed, said in (
                ("3,5", "Total privacy budget: write a number with a decimal point: 3.5"),
                ("-1", "above zero"),
            ):
                page.get_by_label("Total privacy budget").fill(typed)
                page.get_by_role("button", name="Create the site").click()
                page.get_by_text(said).wait_for()
            wrong = {"name": "i.toml", "mimeType": "text/plain", "buffer": b"cards = 3"}
            page.get_by_label("Total privacy budget").fill("4")
            page.get_by_label("Invitation").set_input_files(wrong)
            page.get_by_role("button", name="Create the site").click()
            page.get_by_role("alert").filter(has_not_text="above zero").wait_for()
            assert not (tmp_path / "north").exists()  # a form that is refused leaves no half of a site
            page.get_by_text("Name a file or database now").click()
            errors.clear()  # the refused forms
            page.get_by_label("Table").fill(str(tmp_path / "visits.csv"))
            page.get_by_label("Total privacy budget").fill("4")
            invitation = {"name": "i.toml", "mimeType": "text/plain", "buffer": invitation_of([south]).encode()}
            page.get_by_label("Invitation").set_input_files(invitation)
            page.get_by_role("button", name="Create the site").click()
            page.get_by_text("The site is ready").wait_for()
            page.wait_for_url(url + "/identities")  # the agent runs, and the session goes on
            page.get_by_label("Words of south").fill(south.words.replace("-", " "))
            page.get_by_role("button", name="Pin south").click()
            page.get_by_text("Pinned.").wait_for()
            page.goto(url + "/")
            page.get_by_text("4 of ε 4 left").wait_for()
            page.close()
            assert errors == []
            home = SiteFolder.open(tmp_path / "north")
            assert list(home.peers()) == ["south"]
            assert home.audit.where("event", "pinned")[-1]["who"] == "Ada"
            assert not home.config.policy.exact_sums
        finally:
            process.terminate()


@pytest.mark.parametrize("budget", ["3,5", "0", "-1", "nan", "many"])
def test_a_budget_that_no_ledger_takes_leaves_nothing_behind(tmp_path: Path, budget: str) -> None:
    with pytest.raises(ConfigError):
        SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(), epsilon=budget)
    assert not (tmp_path / "north").exists()
    SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(), epsilon="3.5")


@pytest.mark.parametrize("address", ["north.example", ":7440", "north.example:https", "north.example:70000"])
def test_an_address_without_a_port_is_refused_by_the_name_of_its_field(tmp_path: Path, address: str) -> None:
    async def make() -> None:
        FirstRun(tmp_path / "north", "127.0.0.1:0")._create(Answers(name="north", address=address), "Ada")

    with ThreadPoolExecutor(1) as thread, pytest.raises(ConfigError, match="Address for the other sites: write host and port"):
        thread.submit(asyncio.run, make()).result()  # the loop of browser tests may run in this thread
    assert not (tmp_path / "north").exists()


def test_an_address_that_is_in_use_is_refused_while_the_form_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is in use"):
            require_free(f"127.0.0.1:{port}")
    require_free(None)


def test_the_first_run_is_served_on_loopback_only(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "blindbayes",
        "site",
        "console",
        "--config",
        str(tmp_path / "x"),
        "--operator",
        "0.0.0.0:0",
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 2
    assert re.search("for this machine only", found.stderr)
