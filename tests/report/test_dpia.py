"""The annex to an impact assessment: every statement follows from named fields of the folder, and what is missing is asked."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blindbayes import ColumnStudy, Estimation, NaiveBayes, Privacy, PrivateNaiveBayes, RowStudy
from blindbayes.cli import root
from blindbayes.dp.accounting.statement import PrivacyStatement
from blindbayes.errors import ConfigError, DataError
from blindbayes.io.files import read_folder
from blindbayes.report import dpia
from blindbayes.report.cover_sheet import OFFICER, Cover
from blindbayes.report.dpia import Question, Section, Statement, annex, annex_page, find, read_documents
from support.releases import DATA, release_of, released_sites

FOLDERS = ("between sites", "simulation", "private simulation", "evaluation", "shares", "one table", "one private table")


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    where, book, north = tmp_path_factory.mktemp("dpia"), DATA.codebook, DATA.tables["north"]
    study = RowStudy(book, estimation=Estimation(held_out=0.3))
    exact = study.simulate(DATA.tables)
    columns = book.with_features(each for each in book.features if each.name in ("admission", "diagnosis"))
    halves = {"a": north.select(["admission", "readmitted"]), "b": north.select(["diagnosis"])}
    folders = {
        "between sites": release_of(released_sites(where / "sites"), "north"),
        "simulation": exact.save(where / "exact"),
        "private simulation": RowStudy(book, privacy=Privacy(epsilon=1.5)).simulate(DATA.tables).save(where / "private"),
        "evaluation": study.evaluate(exact, DATA.tables).save(where / "evaluation"),
        "shares": ColumnStudy(columns).simulate(halves).save(where / "shares"),
        "one table": NaiveBayes(book).fit(north).release(where / "one"),
        "one private table": PrivateNaiveBayes(book, epsilon=0.5, delta=1e-9)
        .fit(north)
        .release(where / "one-private", cover=Cover(title="T", owner="North", officer={"controller": "North, board"})),
    }
    assert set(folders) == set(FOLDERS)
    return {name: read_folder(folder) for name, folder in folders.items()}


def documents_of(releases: dict[str, dict[str, bytes]], name: str) -> dict[str, Any]:
    return read_documents(releases[name], Cover(title="T", officer={"purpose": "Plan care", "retention": "5 years"}))


def changed(value: Any) -> Any:
    """The value with every leaf changed."""
    if isinstance(value, dict):
        return {key: item if item is None else changed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [changed(item) for item in value] or ["added"]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 2 + 1
    return 0.625 if value is None else f"changed {value}"


def sources_of(sections: Sequence[Section]) -> Iterator[tuple[Section, Statement]]:
    """Yield every statement with its section."""
    for section in sections:
        yield from ((section, answer) for answer in section.answers if isinstance(answer, Statement))


def with_change(documents: dict[str, Any], source: str) -> dict[str, Any]:
    """The documents with another value at one source."""
    made = copy.deepcopy(documents)
    name, _, path = source.partition("#")
    if not path:
        return made | {name: changed(made[name])}
    *front, last = path.split("/")[1:]
    inside = find(made, f"{name}#{''.join('/' + part for part in front)}")
    key: Any = int(last) if isinstance(inside, list) else last
    inside[key] = changed(inside[key])
    return made


@pytest.mark.parametrize("name", FOLDERS)
def test_changing_any_field_changes_the_statements_that_name_it(releases: dict[str, dict[str, bytes]], name: str) -> None:
    documents = documents_of(releases, name)
    before = [(section.title, said) for section, said in sources_of(annex(documents))]
    assert len(before) > 15
    for source in {source for _, said in before for source in said.sources}:
        after = {(section.title, said.text) for section, said in sources_of(annex(with_change(documents, source)))}
        kept = [said.text for title, said in before if source in said.sources and (title, said.text) in after]
        assert kept == [], source


def test_that_walk_finds_a_statement_that_does_not_use_its_field(
    releases: dict[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dpia, "_odds", lambda epsilon, delta, unit: "Nobody can learn anything.")
    with pytest.raises(AssertionError, match=r"statement\.json"):
        test_changing_any_field_changes_the_statements_that_name_it(releases, "private simulation")


class _Walk(HTMLParser):
    """Collect every text of the page with the classes of the elements around it."""

    def __init__(self) -> None:
        super().__init__()
        self.around: list[tuple[str, str]] = []
        self.texts: list[tuple[list[str], str]] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag not in ("meta",):
            self.around.append((tag, named.get("class") or tag))
        if "data-source" in named:
            self.sources.append(named["data-source"] or "")

    def handle_endtag(self, tag: str) -> None:
        self.around.pop()

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(([kind for _, kind in self.around], data.strip()))


@pytest.mark.parametrize("name", FOLDERS)
def test_page_holds_statements_with_sources_questions_and_nothing_else(
    releases: dict[str, dict[str, bytes]], name: str
) -> None:
    documents = documents_of(releases, name)
    walk = _Walk()
    walk.feed(annex_page(documents, "ab" * 32))
    allowed = {"say", "from", "asks", "ask", "hint", "h1", "h2", "title", "style", "muted preface", "mono"}
    for around, text in walk.texts:
        assert allowed & set(around), text
    said = [each for _, each in sources_of(annex(documents))]
    assert walk.sources == ["\n".join(each.sources) for each in said]
    for sources in walk.sources:
        for source in sources.split("\n"):
            find(documents, source)  # raises if the folder has no such field


@pytest.mark.parametrize("name", FOLDERS)
def test_every_kind_of_release_answers_the_officers_questions_or_asks_them(
    releases: dict[str, dict[str, bytes]], name: str
) -> None:
    sections = annex(documents_of(releases, name))
    titles = [section.title for section in sections]
    for word in (
        "Roles",
        "Categories of data",
        "What left the site",
        "extraction",
        "queries",
        "small cells",
        "Retention",
        "Measures",
        "Health Data Space",
        "Five Safes",
    ):
        (section,) = [section for section, title in zip(sections, titles, strict=True) if word in title]
        assert section.answers, word
    asked = {each.name.lower() for section in sections for each in section.answers if isinstance(each, Question)}
    answered = {text.partition(":")[0].lower() for _, each in sources_of(sections) for text in [each.text]}
    for field in set(OFFICER) - {"joint controllers", "processors"}:  # these two are asked where there are several parties
        assert (field in asked) != (field in answered), field
    assert ("joint controllers" in asked) == (not name.startswith("one"))


def test_numbers_are_those_of_the_privacy_statement(releases: dict[str, dict[str, bytes]]) -> None:
    documents = documents_of(releases, "one private table")
    promise = PrivacyStatement.from_json(releases["one private table"]["statement.json"].decode())
    last = replace(promise.stages[-1], delta=1e-6)
    promise = replace(promise, delta=1e-6, stages=(*promise.stages[:-1], last))
    documents["statement.json"] = promise.to_dict()
    text = " ".join(each.text for _, each in sources_of(annex(documents)))
    factor, chance = promise.odds_bound
    assert (factor, chance) == pytest.approx((2 * math.exp(0.5), 3e-6))
    assert f"factor of at most {factor:.3g} (epsilon 0.5), but for a chance of at most {chance:g}" in text
    assert f"factor of at most {factor:.3g} through" in promise.meaning
    assert f"finds at most {100 * promise.true_positives(0.01):.3g}% of those" in text
    epsilon, delta = promise.group(10)
    assert f"factor is at most {2 * math.exp(epsilon):.3g}, but for a chance of at most {3 * delta:g}" in text
    odds = factor * 0.01 / 0.99
    assert f"at most {100 * odds / (1 + odds):.3g}% likely" in text
    small = json.loads(releases["one table"]["disclosure.json"])["outputs"][0]["checks"][0]["summary"]
    assert small in " ".join(each.text for _, each in sources_of(annex(documents_of(releases, "one table"))))


def test_untrusted_texts_are_escaped_and_wrong_types_refused(releases: dict[str, dict[str, bytes]]) -> None:
    documents = documents_of(releases, "simulation")
    documents["leakage.json"]["follows"] = ["<script>alert(1)</script>"]
    assert "<script>" not in annex_page(documents, "")
    documents["statement.json"] |= {"epsilon": "much", "delta": 0.0, "unit": "one record"}
    with pytest.raises(DataError, match="contents of the release"):
        annex(documents)
    with pytest.raises(ConfigError, match="not a release of this version"):
        read_documents({"model.json": b"{}"})


@pytest.mark.parametrize("name", FOLDERS)
def test_fields_of_any_other_type_give_an_annex_or_our_error(releases: dict[str, dict[str, bytes]], name: str) -> None:
    documents = documents_of(releases, name)
    refused = 0
    for file, table in documents.items():
        for field, value in table.items():
            inside = [(field, key) for key in value] if isinstance(value, dict) else []
            for path in ((field,), *inside):
                for wrong in (None, 7, "x", [], [None], {}, {"x": 1}):
                    changed_table = {**table, field: wrong if len(path) == 1 else {**value, path[-1]: wrong}}
                    try:
                        annex({**documents, file: changed_table})
                    except DataError:
                        refused += 1
    assert refused


def test_command_writes_the_page_beside_the_release_and_takes_a_cover(
    releases: dict[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in releases["private simulation"].items():
        Path("release", name).parent.mkdir(parents=True, exist_ok=True)
        Path("release", name).write_bytes(content)
    Path("cover.toml").write_text(
        CliRunner().invoke(root, ["report", "cover"]).stdout.replace('purpose = ""', 'purpose = "P."')
    )
    done = CliRunner().invoke(root, ["report", "dpia", "release", "--cover", "cover.toml"])
    assert done.exit_code == 0, done.output
    statements, asked = map(int, re.findall(r"[0-9]+", done.output))
    page = Path("dpia.html").read_text()
    assert page.count('class="say"') == statements
    assert page.count('class="ask"') == asked
    assert "Purpose: P." in page
    printed = json.loads(CliRunner().invoke(root, ["report", "dpia", "release", "--json"]).stdout)
    assert sum("text" in each for section in printed for each in section["answers"]) == statements - 1
    assert isinstance(CliRunner().invoke(root, ["report", "dpia", "release"]).exception, ConfigError)  # it exists
    Path("release/statement.md").write_text("changed")
    assert isinstance(CliRunner().invoke(root, ["report", "dpia", "release", "--out", "b.html"]).exception, DataError)
