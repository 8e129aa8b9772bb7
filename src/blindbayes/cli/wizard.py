"""The questions of `blindbayes study init`: plain words, a default where there is a sensible one, each answer checked at once.

Nothing is written before the last answer. An option given on the command line is not asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from blindbayes.cli.answers import (
    among,
    asked,
    binned,
    cards_of,
    duration,
    feature_of,
    new_file,
    new_file_beside,
    number,
    one_of,
    printable,
    several,
    whole,
)
from blindbayes.cli.drafts import command_line, template, write_all
from blindbayes.cli.wizard_columns import COLUMN_OPTIONS, ask_columns, without_floor
from blindbayes.codebook import DEFAULT_MAX_ROWS, Categorical, Codebook, Feature, Numeric
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.report.spec import read_spec
from blindbayes.settings import before, question
from blindbayes.study import RowStudy, Study, schemes
from blindbayes.study.agreement import Agreement
from blindbayes.study.file import Deadlines, Model, Privacy, StudyFile, Thresholds
from blindbayes.study.roster import Party
from blindbayes.transport.identity import Card

T = TypeVar("T")

_STAND_IN: Feature = Categorical("column", ("a", "b"))  # sizes a study whose columns are still to be filled in


def on_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def make_study(
    title: str,
    book: Codebook,
    cards: Sequence[Card],
    without_rows: Sequence[str],
    protocol: str,
    privacy: Privacy,
    limits: Thresholds,
    deadlines: Deadlines,
    model: Model | None = None,
    hosts: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> StudyFile:
    """The study over rows that these answers describe. Raises what `Study` and `StudyFile` raise."""
    parties = tuple(
        Party(card.name, card.identity.hex(), card.name not in without_rows, card.agreement.hex() or None) for card in cards
    )
    settings = {
        name: value for part in (privacy, limits, model or Model()) for name, value in msgspec.structs.asdict(part).items()
    }
    study = Study(book, protocol=protocol, options=options, **settings)
    return StudyFile.of(study, title, parties, hosts=hosts, deadlines=deadlines)


@dataclass(frozen=True)
class _Book:
    """The codebook as far as it is known, where it stands or will stand, and what to write there."""

    book: Codebook
    path: Path
    text: str | None = None  # None: the file exists
    complete: bool = True


class Wizard:
    """One conversation. `given` holds the options that stood on the command line."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._advanced = False  # whether the rarer questions are asked

    def run(self) -> None:
        """Ask, show what follows from the answers, and write."""
        click.echo("Return takes the answer in brackets; Ctrl-C stops, and then nothing is written.\n")
        path = self._answer("path", "Study file", new_file, "study.toml")
        title = self._answer("title", question("title"), printable)
        known = self._codebook(path)
        paths, cards = self._cards()
        if self._over_columns():
            known = self._floored(known)
            study = None
            if known.complete:
                study = ask_columns(title, known.book, cards, self._given, self._may_ask, self._deadlines)
        else:
            study = self._rows(title, known, cards)
        if study is not None:
            _tell(study)
        files = {} if known.text is None else {known.path: known.text}
        if known.complete and study is not None:
            files[path] = study.to_toml()
        click.confirm(f"\nWrite {' and '.join(map(str, files))}?", default=True, abort=True)
        write_all(files)
        if study is not None and known.complete:
            click.echo(f"Wrote {' and '.join(map(str, files))}. sha256 {study.sha256}")
            click.echo(f"Next: blindbayes study check {path}; then send it to every site, which reads and signs it:")
            click.echo(f"  blindbayes study sign {path} --config FOLDER")
            return
        click.echo(f"Wrote {known.path}, a template. Fill in its columns; `blindbayes codebook check {known.path}` says")
        if study is None:
            click.echo("what is missing. Then run `blindbayes study init` again, and say who holds which of them.")
        else:
            click.echo("what is missing. Then this writes the study from your answers:")
            click.echo("  " + command_line(path, study, known.path, paths))

    def _over_columns(self) -> bool:
        """Whether the sites hold different columns; an option that is for one of them says it."""
        if set(self._given) & COLUMN_OPTIONS:
            return True
        if set(self._given) & {"without_rows", "protocol", "epsilon", "quorum", "min_cell"}:
            return False
        click.echo("\n" + before("partition"))
        kinds = ("rows", "columns")
        return asked(question("partition"), one_of(kinds), kinds[0]) != kinds[0]

    def _floored(self, known: _Book) -> _Book:
        """The codebook with a least variance, if it needs one and is not yet on disk."""
        column = without_floor(known.book) if known.complete else None
        if column is None:
            return known
        if known.text is None:
            raise ConfigError(
                f"{known.path.name} declares {column!r} as a number without bins, and no variance_floor, which studies over "
                "columns need: add a line such as variance_floor = 0.01 (in squared units), or give the column bins"
            )
        click.echo("\nWithout bins a number is scored by mean and variance. No variance is taken to be below this one.")
        rule = "give a positive number"

        def of(text: str) -> Codebook:
            return msgspec.structs.replace(known.book, variance_floor=number(text, rule))

        book = asked("Least variance, in squared units", of, "0.01")
        return replace(known, book=book, text=book.to_toml())

    def _rows(self, title: str, known: _Book, cards: Sequence[Card]) -> StudyFile:
        names = [card.name for card in cards]
        click.echo("\n" + before("parties.contributes"))
        without = self._answer("without_rows", question("parties.contributes"), among(names), "", show=False)
        count = len(names) - len(without)
        click.echo("\n" + before("protocol"))
        for name in schemes.known("rows", offered=True, between_sites=True):
            click.echo(f"  {name}: {schemes.scheme(name).facts.line}")
        protocol = self._answer("protocol", question("protocol"), self._protocol(names, without), RowStudy.usual)
        fewest, least = min(3, count), 10  # asked for below

        def trial(
            privacy: Privacy,
            quorum: int | None = self._given.get("quorum"),
            cell: int = 0,
            hosts: Mapping[str, str] | None = None,
        ) -> StudyFile:
            limits = Thresholds(fewest, least, quorum, cell)
            return make_study(title, known.book, cards, without, protocol, privacy, limits, Deadlines(), None, hosts)

        privacy, options = self._privacy(trial, count), {}
        if schemes.scheme(protocol).facts.shares and privacy.epsilon is None:
            click.echo("\n" + before("options.queries"))
            options["queries"] = self._answer("queries", question("options.queries"), whole(1), "1000")
        self._may_ask("thresholds, noise, hosts, model, deadlines")
        self._say("\n" + before("thresholds.min_parties"))
        fewest = self._more("min_parties", question("thresholds.min_parties"), whole(2, count), str(fewest))
        least = self._more(
            "min_rows", question("thresholds.min_rows") + " (sites ask for 10 unless they say otherwise)", whole(0), str(least)
        )
        privacy = self._noise(trial, privacy, rarer=known.complete)  # a template is finished by a call, which has fewer options
        quorum = self._quorum(trial, protocol, count, privacy)
        cell = 0
        if privacy.epsilon is not None or "min_cell" in self._given:
            self._say("\n" + before("thresholds.min_cell"))
            cell = self._more("min_cell", question("thresholds.min_cell"), whole(0), "0")
        hosts = self._hosts(trial, privacy, names) if known.complete else None
        model = self._model() if known.complete else Model()
        limits = Thresholds(fewest, least, quorum, cell)
        return make_study(
            title, known.book, cards, without, protocol, privacy, limits, self._deadlines(), model, hosts, options=options
        )

    # -- one question ------------------------------------------------------------------------------------------------------

    def _answer(self, name: str, text: str, check: Callable[[str], T], default: str | None = None, *, show: bool = True) -> T:
        """The option of that name, or else the first answer that `check` takes. `check` raises an error of the package."""
        if name in self._given:
            value = self._given[name]
            return check(" ".join(value) if isinstance(value, tuple) else str(value))
        return asked(text, check, default, show=show)

    def _may_ask(self, what: str) -> bool:
        """Whether the rarer questions are to be asked: one question for all of them."""
        click.echo("")
        self._advanced = click.confirm(f"More settings ({what})?", default=False)
        return self._advanced

    def _say(self, text: str) -> None:
        """What goes before a rarer question."""
        if self._advanced:
            click.echo(text)

    def _more(self, name: str, text: str, check: Callable[[str], T], default: str, *, show: bool = True) -> T:
        """A rarer question: the option of that name, or its usual answer unless more is to be asked."""
        if name in self._given or self._advanced:
            return self._answer(name, text, check, default, show=show)
        return check(default)

    # -- the codebook ------------------------------------------------------------------------------------------------------

    def _codebook(self, study: Path) -> _Book:
        if "codebook" in self._given:
            path = Path(self._given["codebook"])
            return _shown(_Book(Codebook.from_toml(path), path))
        click.echo(
            "\nThe codebook says what every site may find in its columns. It is public: never fill it from private rows."
        )
        click.echo("  file: you have one")
        click.echo("  dictionary: you have a data dictionary, a CSV with one line per column")
        click.echo("  new: neither; name the columns here, or get a template to fill in")
        kind = asked("Codebook", one_of(("file", "dictionary", "new")), "new")
        if kind == "file":
            path, book = asked("Codebook file", lambda text: (Path(text), Codebook.from_toml(text)), "codebook.toml")
            return _shown(_Book(book, path))
        book, complete = (self._from_dictionary(), True) if kind == "dictionary" else self._new_codebook()
        click.echo("\nThe study holds the codebook; a file of its own lets each site check its table against it.")
        path = asked("Write the codebook to", new_file_beside(study), str(study.with_name("codebook.toml")))
        return _shown(_Book(book, path, book.to_toml() if complete else template(book), complete))

    def _from_dictionary(self) -> Codebook:
        path, target = "columns.csv", "class"
        while True:  # either answer may be the wrong one: both are asked again
            path, target = (
                asked("Data dictionary", printable, path),
                asked("Class column, the one to predict", printable, target),
            )
            try:
                return Codebook.from_dictionary(path, target, max_rows=DEFAULT_MAX_ROWS)
            except BlindbayesError as problem:
                click.echo(f"Error: {problem}")

    def _new_codebook(self) -> tuple[Codebook, bool]:
        target = asked("Class column, the one to predict", printable, "class")

        def labels(text: str) -> tuple[str, ...]:
            found = several(text)
            return Codebook(target, found, (_stand_in(target),)).classes

        classes = asked("Its labels, separated by commas", labels)
        rows = asked("Most rows that any table may hold", whole(1, 2**48), str(DEFAULT_MAX_ROWS))
        click.echo(
            "\nNow the columns to predict from: a list of values, such as `f, m`, or bounds and step, such as `0 to 120 by 1`."
        )
        features: list[Feature] = []
        while True:

            def name_of(text: str) -> str:
                if text.strip():
                    Codebook(target, classes, (*features, Categorical(text.strip(), ("a",))))
                return text.strip()

            name = asked("Column (Return: no more)", name_of, "", show=False)
            if not name:
                break
            feature = asked(f"Values or bounds of {name}", lambda text, name=name: feature_of(name, text))  # type: ignore[misc]
            if isinstance(feature, Numeric):
                click.echo("Bell-shaped numbers need no bins; others are better counted in 5 to 20 bins.")
                feature = asked("Bins (0: none)", lambda text, feature=feature: binned(feature, text), "0")  # type: ignore[misc]
            if click.confirm(f"May {name} be missing in a row?", default=False):
                feature = msgspec.structs.replace(feature, optional=True)
            features.append(feature)
        return Codebook(target, classes, tuple(features) or (_stand_in(target),), max_rows=rows), bool(features)

    # -- who, how, how private, how long -------------------------------------------------------------------------------------

    def _cards(self) -> tuple[list[Path], list[Card]]:
        click.echo(
            "\nWho takes part? Each site hands out a card.toml; a site's folder stands for its own card and all that it pinned."
        )
        paths: list[Path] = []
        cards: list[Card] = []

        def add(text: str) -> None:
            found = cards_of(Path(text.strip())) if text.strip() else []
            for _, card in found:
                if any(card.name == other.name or card.identity == other.identity for other in cards):
                    raise ConfigError(f"{card.name} takes part already")
            for path, card in found:
                paths.append(path)
                cards.append(card)
                click.echo(f"  {card.name}: {card.words}")
            if not found and len(cards) < 2:
                raise ConfigError("a study has at least two sites (three, if sums are exact); give the cards of all, yours too")

        for path in self._given.get("cards", ()):
            add(str(path))
        if not cards:
            while True:
                before = len(cards)
                asked("Card or folder (Return: no more)", add, "", show=False)
                if len(cards) == before:
                    break
        if len(cards) < 2:
            raise ConfigError("a study has at least two sites; give --card once per site")
        click.echo("Compare the words with each site by telephone before you sign.")
        return paths, cards

    def _protocol(self, names: Sequence[str], without: Sequence[str]) -> Callable[[str], str]:
        rows = tuple(name for name in names if name not in without)

        def check(text: str) -> str:
            offered = {} if "protocol" in self._given else {"offered": True}  # by name anything that runs between sites
            name = one_of(schemes.known("rows", between_sites=True, **offered))(text)
            if len(rows) < (minimum := read_spec(name).table.get("minimum", 2)):
                raise ConfigError(f"{name} needs at least {minimum} sites that bring rows; there are {len(rows)}")
            book = Codebook("class", ("a", "b"), (_STAND_IN,))
            stand_in = Agreement(Study(book, protocol=name), "", _NOBODY, _NOBODY)
            if clash := sorted(set(stand_in.seats) & set(names)):
                raise ConfigError(f"a site is called {clash[0]!r}, which {name} keeps for a role; take another protocol")
            return name

        return check

    def _privacy(self, trial: Callable[..., StudyFile], count: int) -> Privacy:
        click.echo("\nexact: the sum is opened as it is; who knows all records of a cell but one can compute the last.")
        click.echo(before("privacy.epsilon"))

        def epsilon_of(text: str) -> float | None:
            value = None if text.strip().lower() == "exact" else number(text, "epsilon is a positive number, or the word exact")
            if value is not None and value <= 0:
                raise ConfigError("epsilon is a positive number, or the word exact")
            if "delta" not in self._given:
                trial(Privacy(epsilon=value))
            return value

        epsilon = self._answer("epsilon", question("privacy.epsilon"), epsilon_of, "exact" if count >= 3 else "1")
        if epsilon is None:
            return Privacy()

        def rows_of(text: str) -> int | None:
            rows = whole(1)(text) if text.strip() else None
            trial(Privacy(epsilon=epsilon, delta=float(self._given.get("delta", 0.0)), expected_rows=rows))
            return rows

        click.echo(before("privacy.expected_rows"))
        rows = self._answer("expected_rows", question("privacy.expected_rows"), rows_of, "", show=False)
        return Privacy(epsilon=epsilon, expected_rows=rows)

    def _noise(self, trial: Callable[..., StudyFile], privacy: Privacy, *, rarer: bool) -> Privacy:
        """The rarer settings of a private study."""
        if privacy.epsilon is None:
            return privacy

        def tried(**fields: Any) -> Privacy:
            found = msgspec.structs.replace(privacy, **fields)
            trial(found)
            return found

        self._say("\n" + before("privacy.delta"))
        rule = "delta is a number from 0 to below 1"
        privacy = self._more("delta", question("privacy.delta"), lambda text: tried(delta=number(text, rule)), "0")
        if not (self._advanced and rarer):
            return privacy
        click.echo(before("privacy.unit"))
        units = ("record", "person", "party") if trial(privacy).book.identifier is not None else ("record", "party")
        unit = asked(question("privacy.unit"), one_of(units), "record")
        if unit == "party":
            most = question("privacy.party_rows")
            privacy = asked(most, lambda text: tried(unit="party", party_rows=whole(1)(text)))
        elif unit == "person":
            most = question("privacy.rows_per_person")
            privacy = asked(most, lambda text: tried(rows_per_person=whole(1)(text)))
        click.echo(before("privacy.gamma"))
        rule = "gamma is a number above 0, at most 1"
        usual = str(round(privacy.gamma, 4))
        return asked(
            question("privacy.gamma"), lambda text: privacy if text == usual else tried(gamma=number(text, rule)), usual
        )

    def _hosts(self, trial: Callable[..., StudyFile], privacy: Privacy, names: Sequence[str]) -> dict[str, str] | None:
        usual = trial(privacy).hosts
        if not self._advanced or not usual:
            return None
        click.echo("\n" + before("hosts"))
        hosts: dict[str, str] = {}
        for seat, host in usual.items():

            def of(text: str, seat: str = seat) -> str:
                name = one_of(names)(text)
                if len(hosts) == len(usual) - 1:  # the last answer settles whether roles lie apart that must
                    trial(privacy, hosts={**hosts, seat: name})
                return name

            hosts[seat] = asked(question("hosts", seat=seat), of, host)
        return hosts

    def _model(self) -> Model:
        if not self._advanced:
            return Model()

        def positive(text: str) -> float:
            value = number(text, "give a positive number")
            if value <= 0:
                raise ConfigError("give a positive number")
            return value

        click.echo("\n" + before("model.var_smoothing"))
        alpha = asked("alpha", positive, "1.0")
        return Model(alpha, asked("var_smoothing", positive, "1e-09"))

    def _quorum(self, trial: Callable[..., StudyFile], protocol: str, count: int, privacy: Privacy) -> int | None:
        usual = trial(privacy, None).setting.quorum_size
        loses = schemes.scheme(protocol).facts.may_lose
        if not loses and "quorum" not in self._given:
            return None  # everybody must answer

        def check(text: str) -> int | None:
            quorum = whole(count // 2 + 1, count)(text)
            if not loses and quorum < count:
                raise ConfigError(f"{protocol} needs every site: leave the quorum out")
            trial(privacy, quorum)
            return None if quorum == usual else quorum

        self._say("\n" + before("thresholds.quorum"))
        return self._more("quorum", question("thresholds.quorum"), check, str(usual))

    def _deadlines(self) -> Deadlines:
        self._say("\n" + before("deadlines.step"))
        step = self._more("step_seconds", question("deadlines.step"), duration, "60")
        join = self._more("join_seconds", question("deadlines.join"), duration, "10 min")
        longest = max(step, join)

        def run_of(text: str) -> float:
            run = duration(text)
            if run < longest:
                raise ConfigError(f"the whole run is not shorter than its parts: at least {longest:g} seconds")
            return run

        run = self._more("run_seconds", question("deadlines.run"), run_of, "1 h" if longest <= 3600 else f"{longest:g}")
        return Deadlines(step, join, run)


_NOBODY = ("-", "--", "---")  # no site has such a name


def _stand_in(target: str) -> Feature:
    return _STAND_IN if target.casefold() != _STAND_IN.name else msgspec.structs.replace(_STAND_IN, name="other column")


# -- what follows, and the files -----------------------------------------------------------------------------------------------


def _shown(known: _Book) -> _Book:
    book = known.book
    click.echo(f"  class column {book.target}: {', '.join(book.classes)}")
    click.echo(f"  columns: {', '.join(book.names) if known.complete else 'to be filled in'}")
    return known


def _tell(study: StudyFile) -> None:
    click.echo("\n" + "\n".join(study.study.scheme.told(study.agreement)))
