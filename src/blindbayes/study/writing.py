"""Write a study from settings that people give one by one, as flags of a command or as fields of a form.

A draft may be wrong. `problems_of` says everything that is wrong with it at once, each problem with the settings that mend it:
what the study refuses first is noted, then the smallest change that gets past it is made, and the study is asked again.
Settings are named by section and field, such as `privacy__epsilon`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from blindbayes.codebook import Categorical, Codebook, Text
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, Estimation, Limits, Privacy, StudyFile
from blindbayes.study.roster import Party
from blindbayes.study.settings import SETTINGS
from blindbayes.study.study import KINDS
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.tasks.task import StudyTask
from blindbayes.study.tasks.traits import ModelForm

APPLIES = {"rows": {"rows"}, "columns": {"columns", "aligned", "shares"}, "join": {"columns", "keyed", "shares"}}
ANYWHERE = {"", "noise"}
_STUDY = ("reveal_to", "key", "duplicates")  # settings of a study that only some kinds have
_NO_DEFAULT = ("protocol", "holds", "columns__labelled", "options__bounds")
_MAX_PROBLEMS = 20
NO_LIMIT = "how many instances may be classified in all? Sites refuse a study without a limit"


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal of a study, and settings that would each mend it."""

    error: BlindbayesError
    settings: tuple[str, ...]


class Draft(NamedTuple):
    """The study that settings describe, which may be wrong. Parties bring rows unless `without_rows` names them."""

    title: str
    book: Codebook
    parties: Sequence[Party]
    kind: str
    given: Mapping[str, Any]

    def refusal(self) -> BlindbayesError | None:
        """Return the first refusal, or None for a valid study."""
        try:
            self.study()
        except BlindbayesError as problem:
            return problem
        return None

    def variants(self) -> Iterator[tuple[str, Draft]]:
        """Yield drafts that differ in one thing, with the setting that changes it."""
        if "bounds" in self.protocol.params.__struct_fields__:
            bounds = dict(self.given.get("options__bounds", ()))
            large = {name: max(bound, MIN_BOUND) if isinstance(bound, int) else bound for name, bound in bounds.items()}
            for each in filter(None, (large, {**{party.name: MIN_BOUND for party in self.parties}, **large})):
                yield "options__bounds", self._with(options__bounds=tuple(each.items()))
        if self.kind == "join" and "study__key" not in self.given:
            yield "study__key", self._with(study__key=("identifier",))
        for name in self.given:
            if name == "privacy__epsilon":  # first another one: what else is set may need it
                yield name, self._with(privacy__epsilon=1.0)
            if name not in _NO_DEFAULT:
                yield name, self._replace(given={key: value for key, value in self.given.items() if key != name})
        if self.book.variance_floor is None:
            yield "codebook", self._replace(book=msgspec.structs.replace(self.book, variance_floor=1.0))
        if self.book.provenance == "inferred":
            yield "codebook", self._replace(book=msgspec.structs.replace(self.book, provenance="declared"))

    def last_variants(self) -> Iterator[tuple[str, Draft]]:
        """Yield drafts with title, parties or holdings replaced, which are other people's decisions."""
        yield "title", self._replace(title="study")
        if self.book.texts:
            plain = [each for each in self.book.features if not isinstance(each, Text)] or [Categorical("feature", ("a", "b"))]
            yield "codebook", self._replace(book=self.book.with_features(plain))
        if self.kind != "rows":
            first = self.parties[0].name if self.parties else ""
            if self.kind == "columns" and "columns__n_rows" not in self.given:
                yield "columns__n_rows", self._with(columns__n_rows=1000)
            yield "columns__labelled", self._with(columns__labelled=(first,))
            yield "holds", self._with(holds=self._all_held(first))
            yield "holds", self._with(holds=self._all_held(first), columns__labelled=(first,))
        made_up = [Party(f"site-{n}", hashlib.sha256(bytes([n])).hexdigest()) for n in range(1, 4 - min(len(self.parties), 3))]
        more = self._replace(parties=(*self.parties, *made_up))
        yield "parties", more
        if self.kind != "rows":
            yield "parties", more._with(holds=more._all_held(more.parties[0].name), columns__labelled=(more.parties[0].name,))
        if "protocol" in self.given:
            default = KINDS[self.kind].__struct_defaults__[0]
            yield "protocol", self._replace(given={**self.given, "protocol": default})

    def _with(self, **settings: Any) -> Draft:
        return self._replace(given={**self.given, **settings})

    def _all_held(self, first: str) -> tuple[tuple[str, str], ...]:
        """Return holdings in which each feature of the codebook is at exactly one party of the study."""
        left, names = set(self.book.names), {party.name for party in self.parties}
        holds: dict[str, str] = {}
        for name, text in self.given.get("holds", ()):
            mine = [each for each in text.split(",") if each in left]
            left -= set(mine)
            holds |= {name: ",".join(mine)} if name in names else {}
        holds = {party.name: holds.get(party.name, "") for party in self.parties}
        holds[first] = ",".join(filter(None, (holds.get(first, ""), *sorted(left))))
        return tuple(holds.items())

    @property
    def protocol(self) -> type[StudyTask]:
        return tasks.task_class(self.given.get("protocol") or KINDS[self.kind].__struct_defaults__[0])

    def study(self) -> StudyFile:
        """Return the study. Over columns without epsilon small counters are set to 0, as sites ask."""
        self._require_settings()
        exact = "privacy__epsilon" not in self.given
        small = Policy().min_cell if self.kind != "rows" and self.protocol.model is ModelForm.SHARED and exact else 0
        groups: dict[str, Any] = {
            "privacy": Privacy(**self._section("privacy")),
            "limits": Limits(**{"min_cell": small, **self._section("limits")}),
            "estimation": Estimation(**self._section("estimation")),
        }
        deadlines, options = Deadlines(**self._section("deadlines")), self._section("options")
        own: dict[str, Any] = {name: value for name, value in self._section("study").items() if name in _STUDY}
        if self.kind == "join" and "min_overlap" in self.protocol.params.__struct_fields__:
            options.setdefault("min_overlap", Policy().min_overlap)
        if self.kind == "join" and (groups["limits"].min_cell or not exact):  # an identifier stands for one record then
            own.setdefault("duplicates", "first")
        study = KINDS[self.kind](self.book, protocol=self.protocol.name, options=options, **groups, **own)
        without = self.given.get("without_rows", ())
        parties = tuple(msgspec.structs.replace(each, contributes=each.name not in without) for each in self.parties)
        columns = None
        if self.kind != "rows":
            holds = {name: tuple(filter(None, text.split(","))) for name, text in self.given.get("holds", ())}
            columns = Holdings(holds, **{"labelled": (), **self._section("columns")})
        hosts = dict(self.given.get("hosts", ()))
        file = StudyFile.make(study, self.title, parties, columns=columns, hosts=hosts, deadlines=deadlines)
        return msgspec.structs.replace(file, changed_by=self.given.get("study__changed_by", ()))

    def _require_settings(self) -> None:
        """Raise for a setting of another kind of study."""
        for name in self.given:
            section, _, setting = name.partition("__")
            path = f"study.{setting}" if section == "study" else f"study.{section}.{setting}"
            over = "rows" if name == "without_rows" else SETTINGS[path].over if path in SETTINGS else ""
            if over not in ANYWHERE | APPLIES[self.kind]:
                raise ConfigError(
                    f"{setting or name} does not apply to a study over {KINDS[self.kind].described}; leave it out"
                )

    def _section(self, section: str) -> dict[str, Any]:
        """Return the settings of a table of the study file."""
        given = {name.partition("__")[2]: value for name, value in self.given.items() if name.startswith(f"{section}__")}
        pairs = {name: dict(value) for name, value in given.items() if isinstance(value, tuple) and isinstance(value[0], tuple)}
        return {**given, **pairs}


def problems_of(draft: Draft) -> list[Problem]:
    """Return everything that is wrong with a draft; empty: `draft.study()` is a study that sites can run."""
    problems: list[Problem] = []
    seen: set[str] = set()
    while (refusal := draft.refusal()) is not None and len(problems) < _MAX_PROBLEMS:
        seen.add(str(refusal))
        mended = _mended(draft.variants(), seen) or _mended(draft.last_variants(), seen)
        mended.sort(key=lambda each: not _is_named(each[0], str(refusal)))  # first the one that the refusal names
        problems.append(Problem(refusal, tuple(dict.fromkeys(name for name, _ in mended))))
        if not mended:
            return problems
        draft = mended[0][1]
    if refusal is None:
        answers = draft.study().task.disclosure.answers
        if answers is not None and answers.queries is None:
            problems.append(Problem(ConfigError(NO_LIMIT), ("options__queries",)))
    return problems


def _is_named(setting: str, text: str) -> bool:
    return re.search(rf"\b{setting.rpartition('__')[2]}\b", text) is not None


def _mended(variants: Iterator[tuple[str, Draft]], seen: set[str]) -> list[tuple[str, Draft]]:
    return [(name, other) for name, other in variants if str(other.refusal()) not in seen]
