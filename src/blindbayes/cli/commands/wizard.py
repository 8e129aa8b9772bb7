"""The questions of `blindbayes study init`.

An answer is an option of the command. The study that the answers describe is made at once, and what it refuses is asked again.
An option given on the command line is not asked for. Nothing is written before the last answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from blindbayes.cli.answers import (
    among,
    asked,
    cards_of,
    duration,
    identifier,
    new_file,
    number,
    one_of,
    printable,
    some_columns,
    whole,
)
from blindbayes.cli.commands.study_init import init, make_study
from blindbayes.cli.commands.wizard_codebook import STAND_IN, ask_codebook
from blindbayes.cli.drafts import command_line, write_all
from blindbayes.codebook import Codebook, Numeric
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import ConfigError
from blindbayes.net.identity import Card
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes.report.spec import read_spec
from blindbayes.study import RowStudy
from blindbayes.study.agreement import Agreement
from blindbayes.study.file import Privacy, StudyFile
from blindbayes.study.settings import STUDY
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.tasks.traits import ModelForm, Standing, Support

_NOBODY = ("-", "--", "---")  # no site has such a name
_COLUMNS = {"holds", "labelled", "key", "bounds", "queries", "reveal_to", "duplicates", "options", "n_rows"}
_ROWS = {"without_rows", "protocol", "epsilon", "quorum", "min_cell"}
_FLOATS = {"alpha", "var_smoothing", "delta", "honest_fraction"}  # the study refuses what is out of bounds
_DURATIONS = {"step", "join", "run"}


def on_terminal() -> bool:
    """Return True if there is somebody to ask."""
    return sys.stdin.isatty()


class Wizard:
    """One conversation. `given` holds the options of the command line."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._answers: dict[str, Any] = {}  # by the names of the options
        self._advanced = False  # whether the rarer questions are asked
        self._cards: list[Card] = []

    def run(self) -> None:
        """Ask, show what follows from the answers, and write."""
        click.echo("Return takes the answer in brackets; Ctrl-C stops, and then nothing is written.\n")
        path = self._ask("path", "study.toml", new_file, trial=False, text="Study file", before="")
        self._ask("title", check=printable, trial=False)
        self._known = ask_codebook(path, self._given.get("codebook"))
        cards = self._ask_cards()
        study: StudyFile | None = None
        if not self._over_columns():
            study = self._ask_rows()
        elif self._known.complete:
            self._require_floor()
            study = self._ask_columns()
        if study is not None:
            _tell(study)
        self._write(path, cards, study)

    def _write(self, path: Path, cards: Sequence[Path], study: StudyFile | None) -> None:
        known = self._known
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
            click.echo("  " + command_line(init, {**self._answers, "codebook": known.path, "cards": cards}))

    # -- one question ------------------------------------------------------------------------------------------------------

    def _study(self, **more: Any) -> StudyFile:
        """Make the study that the answers describe."""
        return make_study(self._answers["title"], self._known.book, self._cards, {**self._given, **self._answers, **more})

    def _ask(
        self,
        name: str,
        default: str | None = None,
        check: Callable[[str], Any] | None = None,
        *,
        rarer: bool = False,
        trial: bool = True,
        text: str | None = None,
        before: str | None = None,
    ) -> Any:
        """Ask for an option, unless it is given; store and return the first answer that `check` and the study accept.

        A rarer question gets its default unless more is to be asked. Without `trial` the study cannot be made yet.
        """
        check = check or (duration if name in _DURATIONS else number if name in _FLOATS else whole(0))

        def checked(answer: str) -> Any:
            value = check(answer)
            if trial:
                self._study(**{name: value})
            return value

        if name in self._given:
            value = self._given[name]
            self._answers[name] = checked(" ".join(value) if isinstance(value, tuple) else str(value))
        elif rarer and not self._advanced:
            self._answers[name] = check(default or "")
        else:
            if before := STUDY[name].before if before is None else before:
                click.echo("\n" + before)
            self._answers[name] = asked(text or STUDY[name].question, checked, default)
        return self._answers[name]

    def _ask_for_more(self, what: str) -> None:
        click.echo("")
        self._advanced = click.confirm(f"More settings ({what})?", default=False)

    def _require_floor(self) -> None:
        """Ask for the variance floor, if the codebook needs one and is not yet on disk."""
        known = self._known
        gaussian = [each.name for each in known.book.features if isinstance(each, Numeric) and each.bins is None]
        if not gaussian or known.book.variance_floor is not None:
            return
        if known.text is None:
            raise ConfigError(
                f"{known.path.name} declares {gaussian[0]!r} as a number without bins, and no variance_floor, which studies "
                "over columns need: add a line such as variance_floor = 0.01 (in squared units), or give the column bins"
            )
        click.echo("\nWithout bins a number is scored by mean and variance. No variance is taken to be below this one.")
        book = asked(
            "Least variance, in squared units",
            lambda text: msgspec.structs.replace(known.book, variance_floor=number(text)),
            "0.01",
        )
        self._known = replace(known, book=book, text=book.to_toml())

    # -- who ---------------------------------------------------------------------------------------------------------------

    def _ask_cards(self) -> list[Path]:
        click.echo(
            "\nWho takes part? Each site hands out a card.toml; a site's folder stands for its own card and all that it pinned."
        )
        paths: list[Path] = []

        def add(text: str) -> bool:
            cards = cards_of(Path(text.strip())) if text.strip() else []
            for _, card in cards:
                if any(card.name == other.name or card.identity == other.identity for other in self._cards):
                    raise ConfigError(f"{card.name} takes part already")
            for path, card in cards:
                paths.append(path)
                self._cards.append(card)
                click.echo(f"  {card.name}: {card.words}")
            if not cards and len(self._cards) < 2:
                raise ConfigError("a study has at least two sites (three, if sums are exact); give the cards of all, yours too")
            return bool(cards)

        for path in self._given.get("cards", ()):
            add(str(path))
        while "cards" not in self._given and asked("Card or folder (Return: no more)", add, ""):
            pass
        if len(self._cards) < 2:
            raise ConfigError("a study has at least two sites; give --card once per site")
        click.echo("Compare the words with each site by telephone before you sign.")
        return paths

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(card.name for card in self._cards)

    def _over_columns(self) -> bool:
        """Ask whether the sites hold different columns, unless an option that is for one of the two is given."""
        if set(self._given) & (_COLUMNS | _ROWS):
            return bool(set(self._given) & _COLUMNS)
        click.echo("\n" + STUDY["kind"].before)
        return asked(STUDY["kind"].question, one_of(("rows", "columns")), "rows") == "columns"

    # -- rows --------------------------------------------------------------------------------------------------------------

    def _ask_rows(self) -> StudyFile:
        brings = STUDY["contributes"]
        without = self._ask("without_rows", "", among(self._names), trial=False, text=brings.question, before=brings.before)
        count = len(self._names) - len(without)
        offered = tasks.known("rows", (Standing.OFFERED,))
        lines = [STUDY["protocol"].before, *(f"  {name}: {tasks.task_class(name).description}" for name in offered)]
        protocol = self._ask("protocol", "masked_sum", self._protocol, trial=False, before="\n".join(lines))
        self._answers |= {"min_parties": self._given.get("min_parties", min(3, count)), "min_rows": 10}
        exact = "exact: the sum is opened as it is; who knows all records of a cell but one can compute the last."
        self._ask("epsilon", "exact" if count >= 3 else "1", _epsilon, before=f"{exact}\n{STUDY['epsilon'].before}")
        private = self._answers["epsilon"] is not None
        if private:
            self._ask("expected_rows", "", lambda text: whole(1)(text) if text.strip() else None)
        if tasks.task_class(protocol).model is ModelForm.SHARED and not private:
            self._ask("queries", "1000", whole(1))
        self._ask_for_more("limits, noise, hosts, model, deadlines")
        self._ask("min_parties", str(min(3, count)), whole(2, count), rarer=True)
        asks = " (sites ask for 10 unless they say otherwise)"
        self._ask("min_rows", "10", rarer=True, text=STUDY["min_rows"].question + asks)
        if private:
            self._ask_noise()
        self._ask_quorum(protocol, count)
        if private or "min_cell" in self._given:
            self._ask("min_cell", "0", rarer=True)
        if self._known.complete and self._advanced:  # a template is finished by a call, which has fewer options
            self._ask_hosts()
            self._ask("alpha", "1.0", before=STUDY["var_smoothing"].before)
            self._ask("var_smoothing", "1e-09", before="")
        self._ask_deadlines()
        return self._study()

    def _protocol(self, text: str) -> str:
        standing = None if "protocol" in self._given else (Standing.OFFERED,)  # given by name, any protocol
        name = one_of(tasks.known("rows", standing))(text)
        count = len(self._names) - len(self._answers["without_rows"])
        if count < (minimum := read_spec(name).table.get("minimum", 2)):
            raise ConfigError(f"{name} needs at least {minimum} sites that bring rows; there are {count}")
        book = Codebook("class", ("a", "b"), (STAND_IN,))
        roles = Agreement(RowStudy(book, protocol=name), "", _NOBODY, _NOBODY).roles
        if clash := sorted(set(roles) & set(self._names)):
            raise ConfigError(f"a site is called {clash[0]!r}, which {name} keeps for a role; take another protocol")
        return name

    def _ask_noise(self) -> None:
        self._ask("delta", "0", rarer=True)
        if not (self._advanced and self._known.complete):
            return
        click.echo("\n" + STUDY["unit"].before)
        units = ("record", "party") if self._known.book.identifier is None else ("record", "person", "party")
        unit = asked(STUDY["unit"].question, one_of(units), "record")
        if unit == "party":
            self._answers["unit"] = "party"
            self._ask("party_rows", check=whole(1))
        elif unit == "person":
            self._ask("rows_per_person", check=whole(1))
        usual = Privacy().honest_fraction
        shown = str(round(usual, 4))
        self._ask("honest_fraction", shown, lambda text: usual if text == shown else number(text))

    def _ask_quorum(self, protocol: str, count: int) -> None:
        loses = Support.DROPOUT in tasks.task_class(protocol).supports
        if not loses and "quorum" not in self._given:
            return  # everybody must answer
        usual = self._study(quorum=None).setting.quorum_size

        def quorum(text: str) -> int | None:
            value = whole(count // 2 + 1, count)(text)
            if not loses and value < count:
                raise ConfigError(f"{protocol} needs every site: leave the quorum out")
            return None if value == usual else value

        self._ask("quorum", str(usual), quorum, rarer=True)

    def _ask_hosts(self) -> None:
        usual = self._study().hosts
        if usual:
            click.echo("\n" + STUDY["hosts"].before)
        hosts: dict[str, str] = {}
        for role, host in usual.items():

            def checked(text: str, role: str = role) -> str:
                name = one_of(self._names)(text)
                if len(hosts) == len(usual) - 1:  # the last answer settles whether roles lie apart that must
                    self._study(hosts={**hosts, role: name})
                return name

            hosts[role] = asked(STUDY["hosts"].question.format(role=role), checked, host)
        self._answers["hosts"] = hosts

    def _ask_deadlines(self) -> None:
        longest = max(
            self._ask(name, default, rarer=True, trial=False) for name, default in (("step", "60"), ("join", "10 min"))
        )

        def run(text: str) -> float:
            if (seconds := duration(text)) < longest:
                raise ConfigError(f"the whole run is not shorter than its parts: at least {longest:g} seconds")
            return seconds

        self._ask("run", "1 h" if longest <= 3600 else f"{longest:g}", run, rarer=True)

    # -- columns -----------------------------------------------------------------------------------------------------------

    def _ask_columns(self) -> StudyFile:
        book, names = self._known.book, self._names
        if "options" in self._given:
            raise ConfigError("--option is for a study that is written without questions: give --holds and --labelled as well")
        if len(self._given.get("labelled", ())) > 1:
            raise ConfigError("one site is asked for its class column: several --labelled need all options, and no questions")
        holds, bounds = self._by_site("holds"), self._by_site("bounds")

        def labelled(text: str) -> tuple[str, ...]:
            return names if one_of((*names, "all"))(text) == "all" else (text.strip(),)

        click.echo("")
        question = STUDY["labelled"].question.format(target=book.target)
        holders = self._ask("labelled", names[0], labelled, trial=False, text=question)
        acts = holders[0] if len(holders) == 1 else "all"
        self._ask_holds(acts, holds)
        aligned = acts == "all" or self._aligned()
        if aligned:
            self._ask("n_rows", check=whole(1, book.max_rows), trial=False)
        else:
            self._ask_join(bounds)
        click.echo(
            "\nNobody gets the model: it stays in shares, one per site. Scoring somebody takes all sites, and opens the class."
        )
        self._ask("reveal_to", acts, one_of(("all", *names)), trial=False)
        self._ask("queries", "10000", whole(1))
        self._ask_for_more("limits, duplicates, model, deadlines")
        if self._advanced:
            if not aligned:
                self._ask_matches()
            self._ask("min_rows", "0")
            self._ask("alpha", "1.0", before="The model: alpha is added to every count.")
        self._ask_deadlines()
        return self._study()

    def _by_site(self, option: str) -> dict[str, str]:
        """Return what `--holds SITE=...` or `--bound SITE=...` says of each site."""
        values = {}
        for text in self._given.get(option, ()):
            site, sign, value = text.partition("=")
            if not sign or site not in self._names:
                wanted = f"say SITE=..., with a site among {', '.join(self._names)}"
                raise ConfigError(f"--{option.removesuffix('s')} {text!r}: {wanted}")
            values[site] = value
        return values

    def _ask_holds(self, labelled: str, given: Mapping[str, str]) -> None:
        book, holds = self._known.book, {}
        click.echo(f"Who holds which of the columns {', '.join(book.names)}?")
        left = list(book.names)
        for name in self._names:
            last, free = name == self._names[-1], name == labelled  # that brings the class, and need bring no more
            usual = ", ".join(left) if last else "" if free else None
            note = " (Return: the rest)" if last else " (Return: none)" if free else ""
            check = some_columns(book, left, last, 0 if free else 1)
            text = STUDY["holds"].question.format(name=name) + note
            holds[name] = check(given[name]) if name in given else asked(text, check, usual)
            left = [column for column in left if column not in holds[name]]
        self._answers["holds"] = tuple(f"{name}={','.join(columns)}" for name, columns in holds.items())

    def _aligned(self) -> bool:
        if set(self._given) & {"n_rows", "key", "bounds"}:
            return "n_rows" in self._given
        click.echo("\nRows line up if every site's table lists the same people in the same order, and all know how many.")
        return click.confirm("Do the rows line up?", default=False)

    def _ask_join(self, given: Mapping[str, str]) -> None:
        if self._known.book.identifier is None:
            self._ask("key", "id", identifier(self._known.book), trial=False)
        else:
            click.echo("Rows are matched by the identifier that the codebook describes.")
        click.echo("\n" + STUDY["bounds"].before)
        check, question = whole(MIN_BOUND), STUDY["bounds"].question
        bounds = {
            name: check(given[name]) if name in given else asked(question.format(name=name), check, str(MIN_BOUND))
            for name in self._names
        }
        self._answers["bounds"] = tuple(f"{name}={bound}" for name, bound in bounds.items())

    def _ask_matches(self) -> None:
        rows = "Several rows of one identifier: first takes the first, reject stops the run."
        self._ask("duplicates", "first", one_of(("first", "reject")), before=rows)
        overlap, usual = STUDY["min_overlap"], str(Policy().min_overlap)
        self._ask(
            "options", usual, lambda text: (f"min_overlap={whole(0)(text)}",), text=overlap.question, before=overlap.before
        )


def _epsilon(text: str) -> float | None:
    if text.strip().lower() == "exact":
        return None
    value = number(text, rule := "epsilon is a positive number, or the word exact")
    if value <= 0:
        raise ConfigError(rule)
    return value


def _tell(study: StudyFile) -> None:
    click.echo("\n" + "\n".join(study.task.summary()))
