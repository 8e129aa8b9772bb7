"""A study from its first word to its release, by clicks at three sites: written, sent, approved, started; refused; revoked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from blindbayes.agent.store.inbox import known_studies
from blindbayes.net.identity import speak
from blindbayes.study.file import Deadlines, StudyFile
from support.consoles import NAMES, Consoles
from support.sites import BOOK

from .conftest import Person

People = Callable[..., Person]


def words_of(study: StudyFile) -> str:
    return " ".join(speak(bytes.fromhex(study.roster.sha256)[:16]).split("-")[:2])


def approve(who: Person, study: StudyFile) -> None:
    who.see(f"/studies/{study.sha256}")
    who.page.get_by_label("First two words").fill(words_of(study))
    who.press("Approve")
    who.says("Approved. The run starts")


def written(office: Consoles, name: str) -> StudyFile:
    (study,) = known_studies(office.office.net.sites[name].home).values()
    return study


def test_a_study_is_written_sent_approved_and_started_in_the_console(tmp_path: Path, person: People) -> None:
    book = tmp_path / "codebook.toml"
    book.write_text(BOOK.to_toml())
    with Consoles(tmp_path / "office", NAMES) as office:
        ada = person(office, "north")
        ada.see("/studies").get_by_role("link", name="Write a study").click()
        ada.page.get_by_label("Purpose").fill("Readmission <b>soon</b>")
        ada.page.get_by_label("The file").set_input_files(book)
        ada.press("Continue")
        # everything that is wrong is said at once, each thing at its field
        ada.page.get_by_label("Epsilon", exact=False).first.fill("-1")
        ada.page.get_by_label("Minimum rows of each site").fill("few")
        ada.press("Save and check")
        ada.says("2 things to do")
        expect(ada.page.locator("#problem-privacy__epsilon")).to_contain_text("positive")
        expect(ada.page.locator("#problem-limits__min_rows")).to_contain_text("whole number")
        ada.expected.append("400")
        ada.press("Make the study")
        ada.says("the study has 2 problems")
        ada.page.get_by_label("Epsilon", exact=False).first.fill("1")
        ada.page.get_by_label("Minimum rows of each site").fill("")
        ada.page.get_by_label("Expected rows").fill("120")
        ada.press("Forecast the accuracy")
        ada.says("Forecast for 120 rows in all")
        ada.press("Make the study")
        ada.says("The study is made")
        study = written(office, "north")
        assert study.title == "Readmission <b>soon</b>"
        assert study.signatures == {}
        ada.press("Send to the other sites")
        ada.says("The invitation is on its way")
        people = {"north": ada} | {name: person(office, name, "Grace") for name in ("south", "west")}
        for name in ("south", "west"):
            people[name].says("invitation of north")  # on the page Today, by itself
            assert office.office.net.sites[name].home.approvals.all() == []
            people[name].page.get_by_role("link", name="Review").click()
            people[name].says("Invitation of north")
            approve(people[name], study)
        ada.page.locator("#answers").get_by_text("approved").nth(1).wait_for()  # both, on the page that north left open
        ada.says("Waiting for north")
        approve(ada, study)
        ada.says("Every site has approved")
        ada.press("Start a run")
        ada.page.wait_for_url(re.compile("/runs/[0-9a-f]{32}$"))
        ada.page.get_by_role("link", name="See the release").click()
        ada.says("All files are as they were released")
        assert ada.page.locator("h1 b").count() == 0  # the title is text
        # each site signed its own release: the signatures of all in one folder
        ada.says("Has not signed the result: south, west")
        path = ada.page.url.removeprefix(ada.url)
        for name in ("south", "west"):
            people[name].see(path.replace("/releases/", "/runs/")).get_by_role("link", name="See the release").wait_for()
            signatures = people[name].page.request.get(f"{people[name].url}{path}/files/common.signatures.json").text()
            wrong = signatures.replace(name, "west" if name == "south" else "south")
            for text, said in ((wrong, "does not name for it"), (signatures, "The signatures are added")):
                ada.expected += ["400"] * (text == wrong)
                sent = {"name": "common.signatures.json", "mimeType": "application/json", "buffer": text.encode()}
                ada.page.get_by_label("Signatures of another site").set_input_files(sent)
                ada.press("Add them")
                ada.says(said)
        ada.says("the common result is signed by north, south, west")
        assert ada.page.get_by_text("Has not signed the result").count() == 0


def test_the_questions_of_a_dictionary_are_answered_in_fields_and_its_labels_are_seen(tmp_path: Path, person: People) -> None:
    dictionary = tmp_path / "dictionary.csv"
    dictionary.write_text(
        'Variable / Field Name,Field Type,Field Label,"Choices, Calculations, OR Slider Labels",'
        "Text Validation Type OR Show Slider Number\nrecord_id,text,,,\npocket,text,Pocket depth,,number\n"
        'plaque,radio,Plaque,"0, none | 2, heavy",\nrelapse,yesno,,,\n'
    )
    with Consoles(tmp_path / "office", NAMES) as office:
        ada = person(office, "north")
        ada.expected += ["400"] * 4
        ada.see("/write").get_by_role("radio", name="A data dictionary").check()
        ada.page.get_by_label("Purpose").fill("Relapse")
        ada.page.get_by_label("The file").set_input_files(dictionary)
        ada.press("Continue")
        ada.says("its format is redcap")
        ada.page.get_by_label("Format of a data dictionary").select_option("redcap")
        ada.press("Continue")
        ada.says("2 questions open; answer them below")
        ada.page.get_by_label("Class column", exact=False).fill("relapse")
        ada.page.get_by_label("Smallest pocket").fill("0")
        ada.press("Continue")
        ada.says("1 question open")
        assert ada.page.get_by_label("Smallest pocket").input_value() == "0"
        ada.page.get_by_label("Largest pocket").fill("much")
        ada.press("Continue")
        ada.says("'much' is not a number")
        ada.page.get_by_label("Largest pocket").fill("15")
        ada.press("Continue")
        ada.says("It predicts relapse")
        ada.says("0 (none), 2 (heavy)")
        ada.says("Pocket depth")
        ada.page.get_by_text("Read and change the file").click()
        book = ada.page.get_by_label("Codebook file").input_value()
        assert hashlib.sha256(dictionary.read_bytes()).hexdigest() in book  # the file went through the form as it is
        ada.page.on("dialog", lambda dialog: dialog.accept())
        ada.see("/write")
        ada.press("Delete")
        ada.says("The draft is deleted")
        expect(ada.page.get_by_role("link", name="Relapse")).to_have_count(0)


def test_a_refusal_reaches_the_author_with_its_reason_and_a_kept_reason_does_not(tmp_path: Path, person: People) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, title="Refused", deadlines=Deadlines(step=20, join=600, run=900))
        north = office.office.net.sites["north"].home
        (north.folder / "studies").mkdir()
        (north.folder / "studies" / "a.toml").write_text(study.to_toml())
        ada = person(office, "north")
        ada.see(f"/studies/{study.sha256}")
        ada.press("Send to the other sites")
        grace, hugo = person(office, "west", "Grace"), person(office, "south", "Hugo")
        for who, reason, shares in ((grace, "<i>no ethics vote yet</i>", True), (hugo, "a private matter", False)):
            who.says("invitation of north")
            who.see(f"/studies/{study.sha256}")
            who.page.get_by_label("Reason", exact=True).fill(reason)
            if not shares:
                who.page.get_by_label("Send the reason").uncheck()
            who.press("Refuse")
            who.says("Refused by")
        answers = ada.page.locator("#answers")  # it came by itself
        answers.get_by_text("<i>no ethics vote yet</i>").wait_for()
        answers.get_by_text("A run needs the approval of south and west").wait_for()
        assert answers.get_by_text("private matter").count() == 0
        ada.see("/studies")
        ada.says("declined: south, west")


def test_a_revocation_ends_the_wait_of_a_run_at_once(tmp_path: Path, person: People) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, title="Revoked", deadlines=Deadlines(step=60, join=600, run=900))
        for name in NAMES:
            office.office.net.sites[name].home.approvals.approve(study)
        grace, ada = person(office, "west", "Grace"), person(office, "north")
        grace.page.on("dialog", lambda dialog: dialog.accept())
        grace.see(f"/studies/{study.sha256}").get_by_label("Reason optional").fill("Board decision")
        grace.press("Revoke the approval")
        grace.says("The approval is revoked")
        ada.see(f"/studies/{study.sha256}")
        ada.says("Board decision")
        ada.press("Start a run")
        ada.page.locator(".tag", has_text="failed").first.wait_for()
        ada.says("west: does not take part: it revoked its approval: Board decision")
        (run,) = office.office.agents["north"].runs.values()
        assert run.ended is not None
        assert run.ended - run.began < 60  # the others had ten minutes to join
        # west refused a run: there is no page of it, and the log has no link that leads nowhere
        office.office.net.sites["west"].home.audit.append("refused", site="north", run="ab" * 16, study=study.sha256)
        grace.see("/log")
        links = {link.get_attribute("href") for link in grace.page.locator("main td a").all()}
        assert "/log?about=" + "ab" * 16 in links
        assert {grace.page.request.get(f"{grace.url}{link}").status for link in links} == {200}
