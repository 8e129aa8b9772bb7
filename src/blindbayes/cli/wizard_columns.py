"""The questions of `blindbayes study init` for sites that hold different columns of the same people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec

from blindbayes.cli.answers import asked as ask
from blindbayes.cli.answers import number, one_of, whole
from blindbayes.cli.study_columns import ColumnOptions, make_columns
from blindbayes.codebook import Codebook, Numeric
from blindbayes.errors import ConfigError
from blindbayes.protocol.joined_sums.roles import MIN_BOUND
from blindbayes.settings import before, question
from blindbayes.site.policy import Policy
from blindbayes.study.file import Deadlines, Model, StudyFile, Thresholds
from blindbayes.transport.identity import Card

T = TypeVar("T")
COLUMN_OPTIONS = {"holds", "labelled", "key", "bounds", "queries", "reveal_to", "duplicates", "options", "n_rows"}


def ask_columns(
    title: str,
    book: Codebook,
    cards: Sequence[Card],
    given: Mapping[str, Any],
    may_ask: Callable[[str], bool],
    deadlines: Callable[[], Deadlines],
) -> StudyFile:
    """The study that the answers describe. What is `given` on the command line is not asked for."""
    names = [card.name for card in cards]
    known = _expanded(given, names)

    def asked(text: str, check: Callable[[str], T], default: str | None = None, *, show: bool = True, name: str = "") -> T:
        return check(known[name]) if name in known else ask(text, check, default, show=show)

    click.echo("")
    who = question("columns.labelled", target=book.target)
    labelled = asked(who, one_of((*names, "all")), names[0], name="labelled")
    click.echo(f"Who holds which of the columns {', '.join(book.names)}?")
    holds = _holds(book, names, labelled, known)
    said: dict[str, Any] = {
        "holds": tuple(f"{name}={','.join(held)}" for name, held in holds.items()),
        "labelled": tuple(names) if labelled == "all" else (labelled,),
    }
    rows, limits, times = None, Thresholds(), Deadlines()

    def made(**more: Any) -> StudyFile:
        return make_columns(title, book, cards, ColumnOptions(**{**said, **more}), rows, limits, times)

    if labelled == "all" or _aligned(known):
        rows = asked(question("columns.n_rows"), whole(1, book.max_rows), name="n_rows")
    else:
        said["key"] = _key(book, known)
        click.echo(before("options.bounds"))
        of_site, least = whole(MIN_BOUND), str(MIN_BOUND)
        bounds = {name: asked(question("options.bounds", name=name), of_site, least, name=f"bound of {name}") for name in names}
        said["bounds"] = tuple(f"{name}={bound}" for name, bound in bounds.items())
    click.echo(
        "\nNobody gets the model: it stays in shares, one per site. Scoring somebody takes all sites, and opens the class."
    )
    said["reveal_to"] = asked(question("reveal_to"), one_of(("all", *names)), labelled, name="reveal_to")
    click.echo(before("options.queries"))
    said["queries"] = asked(question("options.queries"), whole(1), "10000", name="queries")
    if "duplicates" in known:
        said["duplicates"] = known["duplicates"]
    if "min_cell" in known:
        said["min_cell"] = whole(0)(known["min_cell"])
    made()  # what a study over columns refuses is refused before the rarer questions
    if not may_ask("thresholds, duplicates, model, deadlines"):
        return made()
    if rows is None:
        said |= _joining(said.get("duplicates", "first"), made)
    limits = Thresholds(min_rows=asked(question("thresholds.min_rows"), whole(0), "0", name="min_rows"))
    click.echo("\nThe model: alpha is added to every count.")
    alpha = ask("alpha", lambda text: _positive(text, "alpha is a positive number"), "1.0")
    return msgspec.structs.replace(made(), model=Model(alpha=alpha), deadlines=deadlines())


def without_floor(book: Codebook) -> str | None:
    """A Gaussian column of a codebook without a least variance, which studies over columns need."""
    gaussian = [feature.name for feature in book.features if isinstance(feature, Numeric) and feature.bins is None]
    return gaussian[0] if gaussian and book.variance_floor is None else None


def _holds(book: Codebook, names: Sequence[str], labelled: str, known: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        last, left = name == names[-1], [word for word in book.names if not any(word in held for held in found.values())]
        free = name == labelled  # it brings the class, and need bring no more
        usual = ", ".join(left) if last else "" if free else None
        note = " (Return: the rest)" if last else " (Return: none)" if free else ""
        check = _columns(book, left, last, 0 if free else 1)
        if (held := known.get(f"columns of {name}")) is not None:
            found[name] = check(held)
        else:
            found[name] = ask(question("columns.holds", name=name) + note, check, usual, show=False)
    return found


def _columns(book: Codebook, left: Sequence[str], last: bool, fewest: int) -> Callable[[str], list[str]]:
    """Some of the columns that are left; the last site takes all of them."""

    def check(text: str) -> list[str]:
        chosen = [word.strip() for word in text.split(",") if word.strip()]
        if unknown := [word for word in chosen if word not in left]:
            held = "is held by another site" if unknown[0] in book.names else "is not in the codebook"
            raise ConfigError(f"{unknown[0]!r} {held}; left: {', '.join(left) or 'none'}")
        if len(chosen) < fewest:
            raise ConfigError(f"this site brings at least one column; left: {', '.join(left) or 'none'}")
        if last and (missing := [word for word in left if word not in chosen]):
            raise ConfigError(f"nobody holds {missing[0]!r}: every column of the codebook has a holder")
        return [word for word in left if word in chosen]

    return check


def _expanded(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """The options of the command line, one answer each."""
    if "options" in given:
        raise ConfigError("--option is for a study that is written without questions: give --holds and --labelled as well")
    known = {
        name: str(given[name])
        for name in ("queries", "reveal_to", "duplicates", "n_rows", "min_rows", "min_cell", "epsilon")
        if name in given
    }
    if len(given.get("labelled", ())) > 1:
        raise ConfigError("one site is asked for its class column: several --labelled need all options, and no questions")
    known |= {name: ",".join(given[name]) for name in ("labelled", "key") if name in given}
    for option, words in (("holds", "columns of"), ("bounds", "bound of")):
        for text in given.get(option, ()):
            site, found, value = text.partition("=")
            if not found or site not in names:
                raise ConfigError(f"--{option.removesuffix('s')} {text!r}: say SITE=..., with a site among {', '.join(names)}")
            known[f"{words} {site}"] = value
    return known


def _aligned(known: Mapping[str, str]) -> bool:
    if "n_rows" in known or "key" in known or any(name.startswith("bound of") for name in known):
        return "n_rows" in known
    click.echo("\n" + before("aligned"))
    return click.confirm(question("aligned"), default=False)


def _key(book: Codebook, known: Mapping[str, str]) -> tuple[str, ...]:
    """The identifier's columns; none where the codebook has a recipe."""
    if book.identifier is not None:
        click.echo("Rows are matched by the identifier that the codebook describes.")
        return ()

    def of(text: str) -> tuple[str, ...]:
        found = tuple(word.strip() for word in text.split(",") if word.strip())
        if not found or len(set(found)) < len(found):
            raise ConfigError("name at least one column, each once")
        if clash := [word for word in found if word in book.names or word == book.target]:
            raise ConfigError(f"{clash[0]!r} is a column of the codebook; the identifier must not be one")
        return found

    if "key" in known:
        return of(known["key"])
    click.echo(before("key"))
    return ask(question("key"), of, "id")


def _joining(usual: str, made: Callable[..., StudyFile]) -> dict[str, Any]:
    click.echo("\nSeveral rows of one identifier: first takes the first, reject stops the run.")
    duplicates = ask(question("duplicates"), one_of(("first", "reject")), usual)
    click.echo(before("options.min_overlap"))

    def of(text: str) -> dict[str, Any]:
        more = {"duplicates": duplicates, "options": (f"min_overlap={whole(0)(text)}",)}
        made(**more)
        return more

    return ask(question("options.min_overlap"), of, str(Policy().min_overlap))


def _positive(text: str, rule: str) -> float:
    value = number(text, rule)
    if value <= 0:
        raise ConfigError(rule)
    return value
