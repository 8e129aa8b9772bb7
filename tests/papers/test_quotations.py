"""What our pages say of a paper has its place, and numbers given as a paper's stand in the quotations beside that paper."""

from __future__ import annotations

import html
import itertools
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from blindbayes.errors import ConfigError
from blindbayes_papers import PAPERS
from blindbayes_papers.quotations import quotations, quote

ROOT = Path(__file__).parents[2]
PLACE = re.compile(r"abstract|Table \d|Figure \d|Theorem \d|Definition \d|Algorithm \d|Equation|Protocol \d|A\.\d|\d(\.\d)*")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class Tables(HTMLParser):
    """The tables of a page as rows of cell texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_data(self, data: str) -> None:
        if self.tables and self.tables[-1] and self.tables[-1][-1]:
            self.tables[-1][-1][-1] += data


def numbers(text: str) -> set[str]:
    """Numbers to four significant digits, as pages print them."""
    return {f"{float(each.replace(',', '').rstrip('.')):.4g}" for each in NUMBER.findall(text) if each.count(".") < 2}


def cells_of_the_paper(paper: str) -> list[str]:
    page = Tables((ROOT / "docs" / "papers" / paper / "index.html").read_text("utf-8"))
    found = []
    for table in page.tables:
        columns = [at for at, head in enumerate(table[0]) if re.search(r"\bpaper\b", head)]
        for row in table[1:]:
            if row and re.match(r"paper\b", row[0]):
                found += row[1:]
            found += [row[at] for at in columns if at < len(row)]
    return [cell for cell in found if cell.strip()]


@pytest.mark.parametrize("paper", PAPERS)
def test_numbers_of_the_paper_on_our_pages_are_quoted(paper: str) -> None:
    known = set().union(*(numbers(" ".join(map(str, each.values()))) for each in quotations(paper).values()))
    cells = cells_of_the_paper(paper)
    assert cells
    missing = {cell: numbers(cell) - known for cell in cells if numbers(cell) - known}
    assert missing == {}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_quotation_has_a_place(paper: str) -> None:
    for name, entry in quotations(paper).items():
        assert PLACE.search(entry["where"]), name
        assert entry["words"].strip(), name
        assert set(entry) <= {"where", "words", "translated", "converted", "described"}


# -- prose -----------------------------------------------------------------------------------------------------------

SENTENCE = re.compile(r"(?<=[.:;!?])\s+(?=[A-Z*`\u201c(])|\n\s*[-*] |\n\n|\n(?=\d+\. )|\n(?=\|)")
SAYS = (
    "argues asks calls claims counts divides does draws estimates gives has leaves measured measures names opens prints "
    "says sends takes writes"
)
CLAIM = re.compile(
    rf"\b[Tt]he\s+paper\s+(?:{SAYS.replace(' ', '|')})\b|\b[Tt]he paper(?:'s)?:? (?:\(|[\w-]+ ){{0,2}}\d|\bthe paper: \d"
)
PLACES = re.compile(
    r"[Aa]bstract|(?:Tables?|Figures?|Theorems?|Lemma|Definitions?|Algorithms?|Protocols?|[Ee]quations?|Eqs?\.?|[Ss]ections?|[Ll]ines?|[Ss]teps?)"
    r" \(?\d+(?:\.\d+)*(?:(?:,| and| to) \d+(?:\.\d+)*)*|\bA\.\d(?:\.\d)?|\(\d(?:\.\d)*(?=[,;:)])|\b\d\.\d\.\d\b"
)


def prose(path: Path) -> str:
    """Return the text of a page without its tables of figures, code and, in Markdown, code blocks."""
    text = path.read_text("utf-8")
    if path.suffix == ".html":
        text = re.sub(r"<(style|script|table|h\d)\b.*?</\1>", "", text, flags=re.DOTALL)
        return html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"</(?:p|li|h\d|figcaption|div)>", "\n\n", text)))
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def claims(text: str) -> list[str]:
    """Return the sentences that say what a paper does, claims or prints."""
    return [" ".join(each.split()) for each in SENTENCE.split(text) if CLAIM.search(" ".join(each.split()))]


def pages_about(paper: str) -> list[Path]:
    own = [ROOT / "docs" / "papers" / paper / "index.html", *(ROOT / "papers" / "blindbayes_papers" / paper).rglob("*.md")]
    return [*own, ROOT / "docs" / "attacks.md", ROOT / "docs" / "papers" / "index.md", ROOT / "papers" / "README.md"]


PROSE = [(paper, page) for paper in PAPERS for page in pages_about(paper)]
META = re.compile(r"what the paper (?:says|claims)", re.IGNORECASE)  # of the pages themselves, not of a paper


@pytest.mark.parametrize(("paper", "page"), PROSE, ids=[f"{paper}-{page.parent.name}-{page.name}" for paper, page in PROSE])
def test_claims_in_prose_have_a_place_and_quoted_numbers(paper: str, page: Path) -> None:
    quoted = quotations(paper) if page.is_relative_to(ROOT / "papers" / "blindbayes_papers") or paper in page.parts else None
    books = [quoted] if quoted is not None else [quotations(each) for each in PAPERS]
    known = set().union(*(numbers(" ".join(map(str, each.values()))) for book in books for each in book.values()))
    for sentence in claims(prose(page)):
        if META.search(sentence):
            continue
        assert PLACES.search(sentence), f"no section or equation: {sentence}"
        first = re.split(r"; | here | ours ", PLACES.sub("", sentence[CLAIM.search(sentence).start() :]))[0]  # type: ignore[union-attr]
        assert numbers(re.sub(r"[\w^]*[A-Za-z_^]\w*", "", first)) <= known, f"numbers without a quotation: {sentence}"


def test_claims_without_place_or_number_would_be_found() -> None:
    """The planted faults, and sentences that are none."""
    assert claims("Here it is so. The paper claims 88% of it.") == ["The paper claims 88% of it."]
    assert not PLACES.search("The paper claims 88% of it.")
    assert PLACES.search("The paper claims 88% of it (abstract).")
    assert PLACES.search("The paper (4.2) claims it.")
    assert claims("Deviations from the paper. Ours claims it.") == []
    assert all(sum(bool(claims(prose(page))) for page in pages_about(paper)) >= 2 for paper in PAPERS)


def test_a_number_that_the_paper_does_not_have_would_be_found() -> None:
    """The planted fault."""
    known = set().union(*(numbers(each["words"]) for each in quotations("azimian2022").values()))
    assert numbers("up to 87%") <= known
    assert not numbers("up to 88%") <= known


def test_a_quotation_that_is_not_there_is_refused() -> None:
    assert quote("azimian2022", "time").endswith("(abstract)")
    with pytest.raises(ConfigError, match="no entry"):
        quote("azimian2022", "nothing")


HEADING = re.compile(
    r"^[#*\s]*(?P<section>(?:A\.)?\d(?:\.\d)*)\.? +(?=[A-Z])|^[#*\s]*(?P<named>(?:Theorem|Lemma|Definition) \d+)", re.MULTILINE
)


def letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())


def places_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield every section, theorem, lemma and definition with its letters; a theorem ends with its paragraph."""
    sections = [found for found in HEADING.finditer(text) if found["section"]]
    for found, after in itertools.zip_longest(sections, sections[1:]):
        yield found["section"], letters(text[found.end() : after.start() if after else None])
    for found in HEADING.finditer(text):
        if found["named"]:
            yield found["named"], letters(text[found.end() :].split("\n\n", 1)[0])


@pytest.mark.skipif("BLINDBAYES_PAPERS" not in os.environ, reason="the papers' texts are not shipped")
@pytest.mark.parametrize("paper", PAPERS)
def test_quoted_words_stand_where_we_say(paper: str) -> None:
    """Compare letters alone: formulas and line ends differ. Sections and theorems are looked up by their headings."""
    text = Path(os.environ["BLINDBAYES_PAPERS"], f"{paper}.txt").read_text("utf-8")
    placed = list(places_of(text))
    for name, entry in quotations(paper).items():
        if (
            entry.get("translated")
            or entry.get("described")
            or re.match("Table", entry["where"])
            or re.search(r"[=^<|]|max over", entry["words"])
        ):
            continue
        where = re.match(r"((?:A\.)?\d(?:\.\d)*|(?:Theorem|Lemma|Definition) \d+)", entry["where"])
        around = [words for place, words in placed if where and place == where[0]] or [letters(text)]
        for part in entry["words"].split(" ... "):
            longest = max(re.split(r"\d|epsilon|gamma|delta|lambda|sqrt|_|\(|\)", part), key=len)
            assert any(letters(longest) in words for words in around), (name, longest)
