"""Journeys of people through the console, with a real browser."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import expect

from blindbayes import Estimation
from blindbayes.agent.runs.release import check_release
from blindbayes.console.invitations import invitation_of
from blindbayes.net.identity import Identity, speak
from blindbayes.study.file import Deadlines, Privacy, StudyFile
from support.column_sites import Split
from support.consoles import NAMES, Consoles
from support.sites import BOOK, make_rows

from .conftest import Person

QUICK = Deadlines(step=20, join=20, run=35)
People = Callable[..., Person]


def bring(office: Consoles, study: StudyFile, *names: str) -> None:
    for name in names:
        folder = office.office.net.sites[name].home.folder / "studies"
        folder.mkdir(exist_ok=True)
        (folder / f"{study.sha256}.toml").write_text(study.to_toml())


def words_of(study: StudyFile) -> str:
    return " ".join(speak(bytes.fromhex(study.roster.sha256)[:16]).split("-")[:2])


def approve(who: Person, study: StudyFile, runs: int = 1) -> None:
    who.see(f"/studies/{study.sha256}")
    who.page.get_by_label("First two words").fill(words_of(study))
    who.page.get_by_label("Number of").fill(str(runs))
    who.press("Approve")
    who.says("Approved. The run starts")


def test_three_sites_bring_a_study_compare_its_hash_approve_it_and_watch_it_finish(tmp_path: Path, person: People) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, title="Readmission", privacy=Privacy(epsilon=1.0), deadlines=QUICK)
        file = tmp_path / "study.toml"
        file.write_text(study.to_toml())
        people = {name: person(office, name, f"{name}'s steward") for name in NAMES}
        for who in people.values():
            who.see("/studies").get_by_label("or the file itself").set_input_files(file)
            who.press("Add it")
            who.says("Nothing is approved yet")
        ada = people["north"]
        # the wrong words approve nothing
        ada.page.get_by_label("First two words").fill("babab babab")
        ada.expected.append("400")
        ada.press("Approve")
        ada.says("Nothing was approved")
        assert office.office.net.sites["north"].home.approvals.all() == []
        ada.see(f"/studies/{study.sha256}")
        ada.press("Dry run on this site's data")
        ada.says("Nothing was sent")
        for who in people.values():
            approve(who, study)
        ada.see("/")
        ada.says("every site has approved")
        ada.page.get_by_role("link", name="Start a run").click()
        ada.press("Start a run")
        ada.page.wait_for_url(re.compile("/runs/[0-9a-f]{32}$"))
        loads = len(ada.requests)
        ada.page.get_by_role("link", name="See the release").wait_for()  # it came by itself
        assert sum("/runs/" in url and "/events" not in url for url in ada.requests[loads:]) <= 2
        ada.page.get_by_role("link", name="See the release").click()
        ada.says("All files are as they were released")
        ada.says("Privacy statement")
        with ada.page.expect_download() as download:
            ada.page.get_by_role("link", name="Download the folder").click()
        with zipfile.ZipFile(download.value.path()) as archive:  # whole: a site that has the cards can verify it
            packed = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
        home = office.office.net.sites["north"].home
        keys = {"north": office.office.net.sites["north"].identity.card.identity}
        keys |= {name: card.identity for name, card in home.peers().items()}
        assert check_release(packed, keys)[1].makers == ("north",)
        with ada.page.context.expect_page() as annex:
            ada.page.get_by_role("link", name="Annex to an impact assessment").click()
        annex.value.get_by_role("heading", name="Retention and erasure").wait_for()
        ada.see("/ledger")
        ada.says("chain intact")
        entries = office.office.net.sites["south"].home.audit.where("event", "approved")
        assert entries[-1]["who"] == "south's steward"
        # the same approval does not run twice
        ada.see(f"/studies/{study.sha256}")
        expect(ada.page.get_by_role("button", name="Start a run")).to_have_count(0)
        ada.says("all runs that were approved here have been made")
        ada.says("The approved runs are used up at north, south, west")  # the others said so


def test_a_refusal_is_written_down_and_told_to_who_asks_for_a_run(tmp_path: Path, person: People) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, title="Refused", deadlines=QUICK)
        bring(office, study, *NAMES)
        for name in ("north", "south"):
            office.office.net.sites[name].home.approvals.approve(study)
        grace = person(office, "west", "Grace")
        grace.see(f"/studies/{study.sha256}").get_by_label("Reason").first.fill("no ethics vote yet")
        grace.press("Refuse")
        grace.says("Refused by Grace")
        ada = person(office, "north")
        ada.see("/")
        ada.says("west refused")
        ada.says("no ethics vote yet")
        ada.see(f"/studies/{study.sha256}")
        ada.press("Start a run")
        ada.says("no ethics vote yet")


def test_a_run_is_stopped_and_every_site_hears_who_did(tmp_path: Path, person: People) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, title="Stopped", deadlines=QUICK)
        for name in ("north", "south"):
            office.office.net.sites[name].home.approvals.approve(study)  # west never comes
        ada = person(office, "north", "Ada")
        ada.see(f"/studies/{study.sha256}")
        ada.press("Start a run")
        ada.says("waiting for it")
        ada.page.get_by_label("Reason").fill("wrong table")
        ada.page.on("dialog", lambda dialog: dialog.accept())
        ada.press("Stop the run")
        ada.page.locator(".tag", has_text="stopped").or_(ada.page.locator(".tag", has_text="failed")).first.wait_for()
        ada.says("wrong table")
        ada.see("/log?event=stopped")
        ada.says("Ada")


def test_a_budget_that_does_not_pay_is_seen_before_and_refused_after(tmp_path: Path, person: People) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, title="Dear", privacy=Privacy(epsilon=6.0), deadlines=QUICK)
        bring(office, study, "north")
        office.office.net.approve(study, runs=3)
        ada = person(office, "north")
        ada.see(f"/studies/{study.sha256}")
        ada.says("4 would be left after one more run")
        ada.page.get_by_text("Approve more runs", exact=True).click()
        ada.says("The remaining budget covers 1 run")
        ada.press("Start a run")
        ada.page.get_by_role("link", name="See the release").wait_for()
        ada.see(f"/studies/{study.sha256}")
        ada.says("The remaining budget does not cover a run")
        ada.says("it would be refused")  # beside the button that starts a run
        ada.page.get_by_text("Approve more runs", exact=True).click()
        ada.says("The remaining budget covers no run")  # beside the button that approves
        ada.press("Start a run")
        ada.page.locator(".tag", has_text="failed").first.wait_for()
        ada.see("/")
        ada.says("4 of ε 10 left")


def test_a_site_that_dies_is_waited_for_and_the_run_ends_when_it_is_back(tmp_path: Path, person: People) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, title="Back again", deadlines=QUICK)
        office.office.net.approve(study)
        office.stop("west")
        ada = person(office, "north")
        ada.see("/")
        ada.says("not connected")
        ada.see(f"/studies/{study.sha256}")
        ada.press("Start a run")
        ada.says("waiting for west")
        office.start("west")
        ada.page.get_by_role("link", name="See the release").wait_for()


def test_a_ledger_that_was_tampered_with_is_an_alarm_on_every_page_that_needs_it(tmp_path: Path, person: People) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, privacy=Privacy(epsilon=1.0), deadlines=QUICK)
        office.office.net.approve(study, runs=2)
        run = office.do(lambda: office.office.agents["north"].begin(study.sha256))
        office.wait(run.done.wait())
        ada = person(office, "north")
        path = office.office.net.sites["north"].home.ledger.path
        path.write_bytes(path.read_bytes().replace(b'"epsilon":"1"', b'"epsilon":"0"'))
        ada.see("/")
        ada.says("Attention")
        ada.see("/ledger")
        ada.says("The ledger does not verify")


def test_a_site_from_an_old_backup_is_named_on_today(tmp_path: Path, person: People) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, privacy=Privacy(epsilon=1.0), deadlines=QUICK)
        office.office.net.approve(study, runs=4)
        home = office.office.net.sites["west"].home
        backup = {path: path.read_bytes() for path in (home.audit.path, home.ledger.path)}
        run = office.do(lambda: office.office.agents["north"].begin(study.sha256))
        office.wait(run.done.wait())
        office.wait(office.office.agents["west"].runs[run.run_id].done.wait())
        office.stop("west")
        for path, data in backup.items():
            path.write_bytes(data)
        home.__post_init__()  # another process would know nothing either
        office.start("west")
        ada = person(office, "north")
        ada.see(f"/studies/{study.sha256}")
        ada.press("Start a run")
        ada.page.locator(".tag", has_text="failed").first.wait_for()
        ada.see("/")
        ada.page.get_by_text(re.compile("backup|has seen")).first.wait_for()


def test_two_companies_train_over_columns_and_classify_a_batch(tmp_path: Path, person: People) -> None:
    frame = pd.DataFrame(
        {
            "income": ["low", "high"] * 20,
            "calls": ["few", "many", "many", "few"] * 10,
            "default": ["yes", "no", "yes", "no"] * 10,
        }
    )
    split = Split(frame, "default", {"bank": ("income",), "telecom": ("calls",)}, ("bank",))
    with Consoles(tmp_path, tuple(split.holds), rows=split.write(tmp_path / "rows")) as office:
        study = split.study(office.office.net, title="Who pays back", reveal_to="bank")
        bring(office, study, "bank", "telecom")
        people = {name: person(office, name, f"{name}'s steward") for name in split.holds}
        for who in people.values():
            approve(who, study)
        bank, telecom = people["bank"], people["telecom"]
        bank.press("Start a run")
        bank.page.get_by_role("link", name="See the release").wait_for()
        telecom.see("/shares")
        telecom.says("of 10,000 queries used")
        asked = split.ask(tmp_path, frame.drop(columns="default").head(6))
        bank.see("/predictions").get_by_label("Name of the batch").fill("monday")
        bank.page.get_by_label("The instances").fill(asked["bank"]["rows"])
        bank.press("Request this batch")
        bank.says("waiting for telecom")
        telecom.see("/predictions")
        telecom.says("requests to classify a batch")
        telecom.page.get_by_label("Name of the batch").fill("monday")
        telecom.page.get_by_label("The instances").fill(asked["telecom"]["rows"])
        telecom.press("Request this batch")
        for who in (bank, telecom):
            who.page.get_by_role("link", name="See the release").wait_for()
        telecom.see("/shares")
        telecom.says("6 of 10,000 queries used")
        bank.page.get_by_role("link", name="See the release").click()
        bank.says("classes.csv")
        assert bank.page.get_by_role("link", name="classes.csv").count() == 0  # it stands beside rows: not by browser
        # a share is destroyed by the start of its run, and by nothing else
        (run,) = (each["run"] for each in office.office.net.sites["telecom"].home.shares.all())
        telecom.page.on("dialog", lambda dialog: dialog.accept())
        telecom.expected.append("400")
        for typed, says in (("0" * 8, "nothing was destroyed"), (run[:8], "Nobody can classify with that model any more")):
            telecom.see("/shares").get_by_text("Destroy this share").click()
            telecom.page.get_by_label("Type the first eight characters").fill(typed)
            telecom.press("Destroy permanently")
            telecom.says(says)
        telecom.says("This site holds no share")


def test_a_model_is_evaluated_from_its_release_and_from_its_study(tmp_path: Path, person: People) -> None:
    with Consoles(tmp_path, NAMES, rows=make_rows(tmp_path, NAMES, rows=120)) as office:
        study = office.office.net.make_study(BOOK, estimation=Estimation(held_out=0.4, folds=2))
        office.office.net.approve(study, runs=4)
        ada = person(office, "north")
        ada.see(f"/studies/{study.sha256}")
        expect(ada.page.get_by_role("button", name="Evaluate the model")).to_have_count(0)  # nothing is trained yet
        ada.press("Start a run")
        ada.page.get_by_role("link", name="See the release").click()
        ada.press("Evaluate the model")
        ada.page.wait_for_url(re.compile("/runs/[0-9a-f]{48}$"))
        ada.page.get_by_role("link", name="See the release").click()
        ada.says("held-out rows")
        expect(ada.page.get_by_role("img", name="ROC curve and calibration curve of the model")).to_be_visible()
        for button, says in (("Evaluate the model", "held-out rows"), ("Cross-validate", "Cross-validation")):
            ada.see(f"/studies/{study.sha256}")
            ada.press(button)
            ada.page.get_by_role("link", name="See the release").click()
            ada.says(says)
        trained = office.office.agents["north"].trained(study)[0]
        ada.see(f"/releases/{trained}")
        ada.says("No approved run is left")


def test_a_card_is_pinned_by_typing_the_words_that_the_other_site_reads_out(tmp_path: Path, person: People) -> None:
    east = Identity.generate("east").card
    with Consoles(tmp_path, NAMES) as office:
        ada = person(office, "north")
        ada.see("/identities").get_by_label("Its card").set_input_files(
            {"name": "card.toml", "mimeType": "text/plain", "buffer": east.to_toml().encode()}
        )
        assert east.words not in ada.page.content()
        ada.page.get_by_label("Words read out by the site").fill("babab " * 8)
        ada.expected.append("400")
        ada.press("Pin the card")
        ada.says("do not trust it")
        assert "east" not in office.office.net.sites["north"].home.peers()
        ada.page.get_by_label("Its card").set_input_files(
            {"name": "card.toml", "mimeType": "text/plain", "buffer": east.to_toml().encode()}
        )
        ada.page.get_by_label("Words read out by the site").fill(east.words.replace("-", " "))
        ada.press("Pin the card")
        ada.says("Pinned.")
        assert "east" in office.office.net.sites["north"].home.peers()
        # the cards of an invitation are listed, and trusted one by one
        home, farther = office.office.net.sites["north"].home, Identity.generate("farther").card
        invitation = {"name": "i.toml", "mimeType": "text/plain", "buffer": invitation_of([farther]).encode()}
        ada.page.get_by_label("invitation.toml").set_input_files(invitation)
        ada.press("Add it")
        ada.says("farther")
        assert "farther" not in home.peers()
        form = ada.page.locator("form", has=ada.page.get_by_role("button", name="Pin farther"))
        form.get_by_label("Words").fill(farther.words.replace("-", " "))
        ada.press("Pin farther")
        ada.says("Pinned.")
        assert home.peers()["farther"].identity == farther.identity


@pytest.mark.parametrize(
    "scripts", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["with scripts", "without scripts"]
)
def test_every_page_can_be_read_on_a_phone_and_by_keyboard(tmp_path: Path, person: People, scripts: bool) -> None:
    with Consoles(tmp_path, NAMES) as office:
        hostile = '<b>bold</b> "quoted"'
        study = office.office.net.make_study(BOOK, title=hostile, privacy=Privacy(epsilon=1.0), deadlines=QUICK)
        bring(office, study, "north")
        office.office.net.approve(study)
        run = office.do(lambda: office.office.agents["north"].begin(study.sha256))
        office.wait(run.done.wait())
        ada = person(office, "north", "<script>alert(1)</script>", java_script_enabled=scripts)
        ada.page.set_viewport_size({"width": 360, "height": 700})
        for path in (*PAGES, f"/studies/{study.sha256}", f"/runs/{run.run_id}", f"/releases/{run.run_id}"):
            page = ada.see(path)
            assert page.locator("b").count() == 0  # a hostile name is text
            assert page.locator("h1").count() == 1
            if scripts:
                assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
                unnamed = "[...document.querySelectorAll('input:not([type=hidden]),select,textarea')]"
                assert page.evaluate(f"{unnamed}.filter(each => !each.labels.length).length") == 0, path
                page.keyboard.press("Tab")
                assert page.evaluate("document.activeElement.textContent") == "Skip to the page"


PAGES = (
    "/",
    "/studies",
    "/runs",
    "/predictions",
    "/releases",
    "/ledger",
    "/shares",
    "/table",
    "/data",
    "/log",
    "/identities",
    "/settings",
)
