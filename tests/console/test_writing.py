"""Studies written by forms: the same file as by `study init`, every rule at its field, and a codebook that people confirm."""

from __future__ import annotations

import hashlib
import re
import tomllib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest
from click.testing import CliRunner

from blindbayes.agent.approvals.people import Person
from blindbayes.agent.writing import WrittenDraft, make_study, read_codebook
from blindbayes.cli import root
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe, Numeric
from blindbayes.codebook.importers import answers_in
from blindbayes.console import writing
from blindbayes.net.identity import Card, Identity
from blindbayes.study.file import Privacy, StudyFile
from support.consoles import Consoles, csrf_of
from support.sites import BOOK

NAMES = ("north", "south", "west")
CARDS = [Identity.generate(name).card for name in NAMES]
BINNED = Codebook(
    "class", ("ill", "well"), (Categorical("colour", ("red", "blue")), Numeric("age", 0, 120, bins=4)), max_rows=9000
)

NAMED = msgspec.structs.replace(BOOK, identifier=IdRecipe((IdPart("patient", "exact"),)))


def draft(kind: str = "rows", book: Codebook = BOOK, sites: tuple[str, ...] = NAMES, **texts: str) -> WrittenDraft:
    given = {f"party__{name}": "yes" for name in sites} | texts
    return WrittenDraft(title="Readmission", kind=kind, codebook=book.to_toml(), texts=given)  # type: ignore[arg-type]


def by_command(folder: Path, book: Codebook, cards: list[Card], *flags: str) -> bytes:
    (folder / "book.toml").write_text(book.to_toml())
    given = []
    for card in cards:
        (folder / f"{card.name}.toml").write_text(card.to_toml())
        given += ["--card", str(folder / f"{card.name}.toml")]
    out = folder / "study.toml"
    words = ["study", "init", str(out), "--title", "Readmission", "--codebook", str(folder / "book.toml"), *given, *flags]
    done = CliRunner().invoke(root, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out.read_bytes()


SPLIT = {"holder__0": "north", "holder__1": "south", "columns__labelled": "north", "options__queries": "500"}
HELD = ("--holds", "north=colour", "--holds", "south=age", "--labelled", "north", "--queries", "500")


@pytest.mark.parametrize(
    ("written", "cards", "flags"),
    [
        (draft(), 3, ()),
        (
            draft(privacy__epsilon="1", privacy__delta="0.000001", privacy__expected_rows="900", limits__quorum="3"),
            3,
            ("--epsilon", "1", "--delta", "0.000001", "--expected-rows", "900", "--quorum", "3"),
        ),
        (
            draft(rows__west="no", host__server="west", limits__min_parties="2", privacy__epsilon="1"),
            3,
            ("--without-rows", "west", "--host", "server=west", "--min-parties", "2", "--epsilon", "1"),
        ),
        (
            draft(
                book=NAMED,
                rows__west="no",
                limits__min_parties="2",
                privacy__epsilon="1",
                privacy__rows_per_person="1",
                privacy__sites_per_person="matched",
            ),
            3,
            (
                *("--without-rows", "west", "--min-parties", "2", "--epsilon", "1"),
                *("--rows-per-person", "1", "--sites-per-person", "matched"),
            ),
        ),
        (
            draft(estimation__class_weight="ill = 2", estimation__held_out="0.2", deadlines__join="60"),
            3,
            ("--class-weight", "ill=2", "--held-out", "0.2", "--join-seconds", "60"),
        ),
        (draft("columns", BINNED, NAMES[:2], columns__n_rows="400", **SPLIT), 2, (*HELD, "--n-rows", "400")),
        (
            draft("join", BINNED, NAMES[:2], study__key="id", options__bounds="north = 4096, south = 4096", **SPLIT),
            2,
            (*HELD, "--key", "id", "--bound", "north=4096", "--bound", "south=4096"),
        ),
    ],
)
def test_the_form_makes_the_same_file_as_the_command(
    tmp_path: Path, written: WrittenDraft, cards: int, flags: tuple[str, ...]
) -> None:
    study = make_study(written, CARDS)
    assert study.to_toml().encode() == by_command(tmp_path, read_codebook(written.codebook), CARDS[:cards], *flags)
    assert StudyFile.from_text(study.to_toml()).sha256 == study.sha256


# -- the calls ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consoles]:
    with Consoles(tmp_path_factory.mktemp("office"), ("north", "south", "west")) as made:
        yield made


def begin(office: Consoles, **fields: str) -> str:
    answer = office.ask("north", "POST", "/api/write", {"title": "Readmission", **fields})
    assert answer.status == 200, answer.text
    return str(answer.json["draft"])


def test_a_draft_from_the_table_is_confirmed_before_a_study_is_made_of_it(office: Consoles) -> None:
    key = begin(office, source="table", target="class")
    shown = office.ask("north", "GET", f"/api/write/{key}").json
    assert "colour" in shown["codebook"]
    assert "every site will see it" in shown["errors"]["public"][0]
    assert read_codebook(shown["codebook"]).expected_rows == 100  # the table has 40: their number does not leave the site
    fields = {**shown["texts"], "title": "Readmission", "privacy__epsilon": "1"}
    refused = office.ask("north", "POST", f"/api/write/{key}/make", {"fields": fields})
    assert refused.status == 400
    assert "problem" in refused.json["message"]
    made = office.ask("north", "POST", f"/api/write/{key}/make", {"fields": {**fields, "public": "yes"}})
    assert made.status == 200, made.text
    study = office.ask("north", "GET", f"/api/studies/{made.json['study']}").json
    assert study["state"] == "waiting"
    assert office.ask("north", "GET", f"/api/write/{key}").status == 404  # it is a study now
    log = office.office.net.sites["north"].home.audit
    assert [len(log.where("event", event)) for event in ("codebook drafted", "study written")] == [1, 1]


def test_a_codebook_is_changed_as_a_table_of_its_columns(office: Consoles) -> None:
    key = begin(office, text=BOOK.to_toml())
    shown = office.ask("north", "GET", f"/api/write/{key}").json
    assert [each["name"] for each in shown["columns"]] == ["colour", "age"]
    fields = {**shown["texts"], "title": "Readmission", "codebook": shown["codebook"], "columns": "2", "classes": "ill\nwell"}
    kept = {"column__0__keep": "yes", "column__0__values": "red\r\ngreen\r\n", "column__1__low": "18", "column__1__high": "110"}
    added = {"added__name": "month", "added__values": "1\n2\n3"}

    def saved(**more: str) -> tuple[int, str]:
        answer = office.ask("north", "POST", f"/api/write/{key}", {"fields": {**fields, **more}})
        return answer.status, answer.text

    assert saved(**kept, column__1__keep="yes")[0] == 200
    book = read_codebook(office.ask("north", "GET", f"/api/write/{key}").json["codebook"])
    assert book.features == (Categorical("colour", ("red", "green")), Numeric("age", 18, 110))
    fields["codebook"] = office.ask("north", "GET", f"/api/write/{key}").json["codebook"]
    assert saved(**kept, **added)[0] == 200  # age is no longer ticked
    changed = office.ask("north", "GET", f"/api/write/{key}").json
    assert [each["name"] for each in changed["columns"]] == ["colour", "month"]
    assert "column__0__values" not in changed["texts"]
    fields["codebook"] = changed["codebook"]
    for wrong, said in (
        ({"column__0__values": "red"}, "keep one"),
        ({"column__0__keep": "yes", "column__0__values": "red\nred"}, "occurs twice"),
        ({"column__0__keep": "yes", "added__name": "age", "added__low": "0,5", "added__high": "9"}, "decimal point: 0.5"),
        ({"column__0__keep": "yes", "added__name": "age"}, "list its values"),
        ({"column__0__keep": "yes", "column__0__values": "=HYPERLINK(1)\nred"}, "formula"),
    ):
        status, text = saved(**wrong)
        assert (status, said in text) == (400, True), text
    assert office.ask("north", "GET", f"/api/write/{key}").json["codebook"] == fields["codebook"]


def test_a_data_dictionary_becomes_a_codebook_and_a_wrong_one_is_refused(office: Consoles) -> None:
    text = "name,kind,values,low,high\nclass,categorical,ill|well,,\ncolour,categorical,red|blue,,\nage,numeric,,0,120\n"
    shown = office.ask("north", "GET", f"/api/write/{begin(office, source='dictionary', target='class', text=text)}").json
    assert shown["problems"] == 0
    assert shown["features"] == ["colour", "age"]
    for wrong in ({"source": "dictionary", "text": text}, {"source": "file", "text": "no [ codebook"}, {"source": "file"}):
        answer = office.ask("north", "POST", "/api/write", {"title": "x", **wrong})
        assert answer.status == 400


DICTIONARIES = Path(__file__).parents[1] / "codebook" / "dictionaries"


@pytest.mark.parametrize(
    ("name", "answers", "features"),
    [
        ("redcap/api_metadata.csv", "--target response\n--bound psa=0:1000 --precision psa=0.1", ["grade", "psa"]),
        ("frictionless/package.json", "--table observations --target rain", ["station", "temperature"]),
        ("csvw/inherited.json", "--target status", ["count one", "count two"]),
        ("ddi/household.xml", "--target TENURE --bound INCOME=0:50000 --unit 'INCOME=EUR a year'", ["ROOMS", "INCOME"]),
        ("sdmx/lists.json", "--column decimals=CL_DECIMALS --column status=CL_CONF_STATUS --target status", ["decimals"]),
    ],
)
def test_a_dictionary_that_the_organisation_has_is_imported_and_its_questions_are_answered(
    office: Consoles, name: str, answers: str, features: list[str]
) -> None:
    given = {"source": "dictionary", "format": name.partition("/")[0], "text": (DICTIONARIES / name).read_text()}
    asked = office.ask("north", "POST", "/api/write", {"title": "x", **given})
    assert asked.status == 400
    assert "--" in asked.json["message"]
    shown = office.ask("north", "GET", f"/api/write/{begin(office, **given, answers=answers)}").json
    assert shown["features"] == features
    made = Codebook.from_dict(tomllib.loads(shown["codebook"]))
    assert made.origin is not None
    assert made.origin.sha256 == hashlib.sha256((DICTIONARIES / name).read_bytes()).hexdigest()
    assert made.provenance == "data dictionary"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"answers": "bound psa=0:1"}, "as the questions show them"),
        ({"answers": "--bound"}, "as the questions show them"),
        ({"answers": "--bound 'psa"}, "a quote without its end"),
        ({"answers": "--keep " + "x" * 20_000}, "at most 20,000"),
        ({"answers": "--bounds psa=0:1"}, "--bounds answers no question"),
        ({"answers": "--bound psa=0"}, "psa=LOW:HIGH"),
        ({"format": "spss"}, "codebook import spss"),
        ({"format": "pickle"}, "is not a format"),
        ({"format": "ddi"}, "not valid XML"),
    ],
)
def test_answers_and_formats_that_are_none_are_refused(office: Consoles, fields: dict[str, str], message: str) -> None:
    text = (DICTIONARIES / "redcap" / "api_metadata.csv").read_text()
    given = {"title": "x", "source": "dictionary", "format": "redcap", "text": text, "target": "response", **fields}
    answer = office.ask("north", "POST", "/api/write", given)
    assert answer.status == 400
    assert message in answer.json["message"]


def test_the_page_shows_the_questions_of_a_dictionary_and_keeps_the_answers(office: Consoles) -> None:
    ada = office.sign_in("north")
    text = (DICTIONARIES / "redcap" / "api_metadata.csv").read_text()
    given = {"csrf": csrf_of(office, ada), "title": "Stay", "source": "dictionary", "format": "redcap", "text": text}
    answer = office.ask(
        "north", "POST", "/write", urlencode({**given, "answers": "--unit psa=ng/ml"}), headers=ada, token=False
    )
    assert answer.status == 400
    assert "answer them below" in answer.text
    assert "--bound" not in answer.text.partition("Other answers")[0]
    asked = ('name="ask-1" value="bound psa"', 'name="ask-1-low" inputmode="decimal" class="short" value="0"', "Class column")
    for piece in (*asked, '<option value="redcap" selected>', ">--unit psa=ng/ml</textarea>"):
        assert piece in answer.text, piece


def test_answers_to_questions_become_flags_and_an_earlier_file_stays_as_it_is() -> None:
    asked = {
        "ask-0": "bound body mass",
        "ask-0-low": " 0",
        "ask-0-high": "250 ",
        "ask-1": "values ward",
        "ask-1-values": "a\r\nb c\r\n",
    }
    earlier = b64encode(b"name\nage\n").decode()
    given = writing.from_form({"answers": "--unit age=y", "earlier": earlier, **asked, "ask-2": "bound age", "ask-2-low": "1"})
    assert answers_in(given["answers"]) == {
        "units": {"age": "y"},
        "bounds": {"body mass": (0.0, 250.0)},
        "values": {"ward": ["a", "b c"]},
    }
    assert given["text"] == "name\nage\n"
    assert writing.from_form({"text": "new", "earlier": earlier})["text"] == "new"
    assert writing.from_form({"earlier": "no base64"})["text"] == ""


def test_a_study_that_cannot_be_begun_keeps_what_was_typed(office: Consoles) -> None:
    ada = office.sign_in("north")
    given = {"csrf": csrf_of(office, ada), "title": "Stay", "kind": "join", "source": "table", "target": "clas", "text": ""}
    answer = office.ask("north", "POST", "/write", urlencode(given), headers=ada, token=False)
    assert answer.status == 400
    assert "one of " in answer.text  # its columns, to choose from
    for field in ('value="Stay"', 'value="join" checked', 'value="table" checked', 'value="clas"'):
        assert field in answer.text, field


def test_a_study_that_was_written_is_signed_only_if_a_steward_asks(office: Consoles) -> None:
    home = office.office.net.sites["south"].home
    answer = office.ask("south", "POST", "/api/write", {"title": "Signed", "text": BOOK.to_toml()}).json
    fields = office.ask("south", "GET", f"/api/write/{answer['draft']}").json["texts"]
    made = office.ask("south", "POST", f"/api/write/{answer['draft']}/make", {"fields": {**fields, "sign": "yes"}}).json
    assert StudyFile.from_toml(home.folder / "studies" / f"{made['study']}.toml").require_signatures() == ("south",)
    draft = office.ask("south", "POST", "/api/write", {"title": "Again", "text": BOOK.to_toml()}).json["draft"]
    drafted = {"title": "Of the table", "source": "table", "target": "class"}
    from_table = office.ask("south", "POST", "/api/write", drafted).json["draft"]
    home.people.add(Person("Ada", "steward"))
    home.people.add(Person("Cleo", "analyst"), who="Ada")
    browser = office.sign_in("south", "Cleo")
    hidden = office.ask("south", "GET", f"/write/{from_table}", headers=browser, token=False)
    assert hidden.status == 409  # values from rows, which nobody has confirmed to be public
    assert "colour" not in hidden.text
    page = office.ask("south", "GET", f"/write/{draft}", headers=browser, token=False).text
    assert "Sign it in this site" not in page


@pytest.mark.parametrize("key", ["0" * 15, "..%2f..%2fsite", "g" * 16, "0" * 16])
def test_a_draft_that_does_not_exist_is_missing(office: Consoles, key: str) -> None:
    assert office.ask("north", "GET", f"/api/write/{key}").status == 404
    assert office.ask("north", "POST", f"/api/write/{key}", {"fields": {}}).status == 404


def test_hostile_texts_in_a_draft_are_text(office: Consoles) -> None:
    key = begin(office, title="<script>alert(1)</script>", text=BOOK.to_toml())
    fields = {"privacy__epsilon": '"><img src=x>', "title": "<script>alert(1)</script>", "party__north": "<b>"}
    assert office.ask("north", "POST", f"/api/write/{key}", {"fields": fields}).status == 200
    page = office.ask("north", "GET", f"/write/{key}", headers=office.sign_in("north"), token=False).text
    assert "<script>alert" not in page
    assert "<img src=x>" not in page


def test_the_approval_page_keeps_terms_of_art_behind_a_fold(office: Consoles) -> None:
    made = office.office.net.make_study(BOOK, title="Plain", privacy=Privacy(epsilon=1.0))
    answer = office.ask("west", "POST", "/api/studies", {"text": made.to_toml()})
    assert answer.status == 200, answer.text
    page = office.ask("west", "GET", f"/studies/{made.sha256}", headers=office.sign_in("west"), token=False).text
    body = page.partition("<main")[2]
    visible = re.sub(r"<details.*?</details>", "", body, flags=re.S)
    folded = "".join(re.findall(r"<details.*?</details>", body, flags=re.S))
    for term in ("masked_sum", "SPEC", "P(k)", "honest_fraction", "δ", "ε", "vector", made.book.sha256):
        assert term not in visible, term
    assert "masked_sum" in folded
    assert "honest_fraction" in folded
    for words in ("What leaves this site", "Who can learn what", "If somebody cheats", "privacy budget", "No row, name"):
        assert words in visible, words
    assert made.sha256 in visible  # to compare


def test_a_study_of_the_same_title_and_another_hash_is_not_passed_off_as_the_first(office: Consoles) -> None:
    first, second = (office.office.net.make_study(BOOK, title="Twin", privacy=Privacy(epsilon=each)) for each in (1.0, 2.0))
    for study in (first, second):
        assert office.ask("west", "POST", "/api/studies", {"text": study.to_toml()}).status == 200
    signed_in = office.sign_in("west")
    for study, other in ((first, second), (second, first)):
        page = office.ask("west", "GET", f"/studies/{study.sha256}", headers=signed_in, token=False).text
        assert "Another study has the same title" in page
        assert f"/studies/{other.sha256}" in page
