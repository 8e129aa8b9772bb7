"""`blindbayes study init`: a study from flags, one for each setting of a study file and each option of a protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import click
import msgspec

from blindbayes.cli import options as shared
from blindbayes.cli.commands.settings import FIELDS
from blindbayes.codebook import Codebook
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.files import write_whole
from blindbayes.net.identity import Card, read_card
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, Estimation, Limits, Privacy, StudyFile
from blindbayes.study.roster import Party
from blindbayes.study.settings import SETTINGS, option_lines
from blindbayes.study.study import KINDS
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.tasks.task import StudyTask
from blindbayes.study.tasks.traits import ModelForm

_NO_FLAG = {"title", "kind", "protocol", "options", "codebook", "hosts", "changes", "signatures", "format", "holds"}
_NO_FLAG |= {"candidates"}  # tables: they are written in the file
_APPLIES = {"rows": {"rows"}, "columns": {"columns", "aligned", "shares"}, "join": {"columns", "keyed", "shares"}}
_ANYWHERE = {"", "noise"}
_STUDY = ("reveal_to", "key", "duplicates")  # settings of a study that only some kinds have


def _value(text: str) -> Any:
    """Return a number, True, False or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


def _text_pair(text: str) -> tuple[str, str]:
    """Return the two sides of NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _pair(text: str) -> tuple[str, Any]:
    name, value = _text_pair(text)
    return name, _value(value)


def _flag(section: str, name: str, kind: Any, text: str, default: Any = None) -> click.Option:
    """Return the flag of a setting or option, by its type."""
    given = _bare(kind)
    types = [_bare(each) for each in get_args(given) or (given,) if each is not type(None)]
    plain = given if get_origin(given) in (Literal, dict, tuple) else types[0] if len(types) == 1 else None
    flag = "--" + name.removesuffix("s" if get_origin(plain) is dict else "").replace("_", "-")
    shown = f"{default:.4g}" if isinstance(default, float) else str(default)
    more: dict[str, Any] = {"help": text if default in (None, msgspec.NODEFAULT, ()) else f"{text} [default: {shown}]"}
    if section == "deadlines":
        flag += "-seconds"
    if plain is bool:
        flag += f"/--no-{flag[2:]}"
        more["default"] = None  # the protocol's
    elif get_origin(plain) is Literal:
        more["type"] = click.Choice(get_args(plain))
    elif get_origin(plain) is dict:
        more |= {"multiple": True, "type": _pair, "metavar": "NAME=VALUE"}
    elif get_origin(plain) is tuple:
        more["multiple"] = True
    else:
        more["type"] = plain or _value
    return click.Option([flag, f"{section}__{name}"], **more)


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _setting_flags() -> Iterator[click.Option]:
    for section, fields in FIELDS.items():
        for name, field in fields.items() if section.startswith("study") and section != "study.parties" else ():
            if name not in _NO_FLAG:
                setting = SETTINGS[f"{section}.{name}"]
                yield _flag(section.removeprefix("study.") or "study", name, field.type, setting.sentence, field.default)


def _option_flags() -> Iterator[click.Option]:
    """Yield a flag for each option of a protocol; protocols that have it in common share it."""
    kinds: dict[str, Any] = {}
    users: dict[str, dict[str, list[str]]] = {}
    for protocol in tasks.names():
        params = tasks.task_class(protocol).params
        for field in msgspec.structs.fields(params):
            kinds[field.name] = _either(kinds.get(field.name), field.type)
            text = option_lines(params)[field.name].replace("`", "")
            users.setdefault(field.name, {}).setdefault(text, []).append(protocol)
    for name, kind in kinds.items():
        text = "; ".join(f"{', '.join(protocols)}: {text}" for text, protocols in users[name].items())
        yield _flag("options", name, kind, f"Of {text}.")


def _either(first: Any, second: Any) -> Any:
    """Return the choices of both types; any other type is the same in both protocols."""
    choices = [each for kind in (first, second) for each in _choices(kind)]
    return Literal[tuple(dict.fromkeys(choices))] if choices else second


def _choices(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(each for part in get_args(kind) for each in _choices(part))


class _Init(click.Command):
    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *_setting_flags(), *_option_flags(), help_option]


@click.command(cls=_Init)
@click.argument("path", metavar="STUDY", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--title", required=True, help=SETTINGS["study.title"].sentence)
@click.option("--codebook", required=True, type=shared.FILE, help=SETTINGS["study.codebook"].sentence)
@click.option("--card", "cards", required=True, multiple=True, type=shared.FILE, help="A site's card; once per site.")
@click.option("--protocol", help=f"{SETTINGS['study.protocol'].sentence} Known: {', '.join(tasks.names())}.")
@click.option("--without-rows", multiple=True, help="Over rows: a site that brings no rows (and may host a role).")
@click.option("--host", "hosts", multiple=True, type=_text_pair, metavar="ROLE=SITE", help=SETTINGS["study.hosts"].sentence)
@click.option("--holds", multiple=True, type=_text_pair, metavar="SITE=FEATURE,...", help="Over columns; SITE= for none.")
def init(path: Path, title: str, codebook: Path, cards: Sequence[Path], **given: Any) -> None:
    r"""Write a STUDY from a codebook and the cards of the sites.

    Sites that hold the same columns need no more than that. A study over columns says who holds what (--holds, --labelled).

    Example:
      blindbayes study init study.toml --title Readmission --codebook codebook.toml \
        --card north.toml --card south.toml --card west.toml
      blindbayes study init study.toml --title Default --codebook codebook.toml --card bank.toml --card telecom.toml \
        --holds bank=income,age --holds telecom=calls --labelled bank --n-rows 5000 --queries 1000 --reveal-to bank
    """
    study = make_study(title, Codebook.from_toml(codebook), [read_card(card) for card in cards], given)
    write_whole(path, study.to_toml().encode(), private=False, replace=False)
    click.echo(f"Wrote {path}. sha256 {study.sha256}")
    click.echo(f"Next: blindbayes study check {path}; then every site reads and signs it: blindbayes study sign {path}")


def make_study(title: str, book: Codebook, cards: Sequence[Card], given: Mapping[str, Any]) -> StudyFile:
    """Return the study that the flags describe, by the names of their parameters, such as `privacy__epsilon`.

    Raises one error with everything that is wrong, each with the flag that mends it.
    """
    settings = {name: value for name, value in given.items() if value is not None and value != ()}
    draft = _Draft(title, book, cards, _kind(settings), settings)
    problems: list[tuple[BlindbayesError, str]] = []
    seen: set[str] = set()
    while (refusal := draft.refusal()) is not None:
        seen.add(str(refusal))
        mended = [(flag, other) for flag, other in draft.variants() if str(other.refusal()) not in seen]
        flags = dict.fromkeys(flag for flag, _ in mended)
        problems.append((refusal, f"{refusal} ({' or '.join(flags)})" if flags else str(refusal)))
        if not mended:
            break
        draft = mended[0][1]
    else:
        answers = draft.study().task.disclosure.answers
        if answers is not None and answers.queries is None:
            text = "how many instances may be classified in all? Sites refuse a study without a limit (--queries)"
            problems.append((ConfigError(text), text))
    if len(problems) == 1:
        raise type(problems[0][0])(problems[0][1])
    if problems:
        raise ConfigError("\n  ".join(["the study has several faults:", *(text for _, text in problems)]))
    return draft.study()


def _kind(given: Mapping[str, Any]) -> str:
    """Return the kind of study. Over columns, rows line up if their number is given."""
    protocol = tasks.task_class(given["protocol"]) if "protocol" in given else None
    over_columns = any(name in given for name in ("holds", "columns__labelled"))
    if not over_columns and (protocol is None or "rows" in protocol.partitions):
        return "rows"
    aligned = "columns__n_rows" in given if protocol is None else protocol.aligned
    return "columns" if aligned else "join"


class _Draft(NamedTuple):
    """The study that flags describe, which may be wrong."""

    title: str
    book: Codebook
    cards: Sequence[Card]
    kind: str
    given: Mapping[str, Any]

    def refusal(self) -> BlindbayesError | None:
        """Return what is wrong first; None: nothing is."""
        try:
            self.study()
        except BlindbayesError as problem:
            return problem
        return None

    def variants(self) -> Iterator[tuple[str, _Draft]]:
        """Yield drafts that differ in one thing, with the flag that changes it."""
        if "bounds" in self.protocol.params.__struct_fields__:
            bounds = dict(self.given.get("options__bounds", ()))
            large = {name: max(bound, MIN_BOUND) if isinstance(bound, int) else bound for name, bound in bounds.items()}
            for each in filter(None, (large, {**{card.name: MIN_BOUND for card in self.cards}, **large})):
                yield "--bound", self._replace(given={**self.given, "options__bounds": tuple(each.items())})
        if self.kind == "join" and "study__key" not in self.given:
            yield "--key", self._replace(given={**self.given, "study__key": ("identifier",)})
        for name in self.given:
            if name not in ("protocol", "holds", "columns__labelled", "options__bounds"):  # these have no default
                yield _flag_of(name), self._replace(given={key: value for key, value in self.given.items() if key != name})
        if self.book.variance_floor is None:
            yield "in the codebook", self._replace(book=msgspec.structs.replace(self.book, variance_floor=1.0))

    @property
    def protocol(self) -> type[StudyTask]:
        return tasks.task_class(self.given.get("protocol") or KINDS[self.kind].__struct_defaults__[0])

    def study(self) -> StudyFile:
        """Return the study. Over columns without epsilon small counters are set to 0, as sites ask."""
        self._require_flags()
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
        parties = tuple(
            Party(each.name, each.identity.hex(), each.name not in without, each.agreement.hex() or None) for each in self.cards
        )
        columns = None
        if self.kind != "rows":
            holds = {name: tuple(filter(None, text.split(","))) for name, text in self.given.get("holds", ())}
            columns = Holdings(holds, **{"labelled": (), **self._section("columns")})
        hosts = dict(self.given.get("hosts", ()))
        file = StudyFile.make(study, self.title, parties, columns=columns, hosts=hosts, deadlines=deadlines)
        return msgspec.structs.replace(file, changed_by=self.given.get("study__changed_by", ()))

    def _require_flags(self) -> None:
        """Raise for a flag that is for another kind of study."""
        for name in self.given:
            section, _, setting = name.partition("__")
            path = f"study.{setting}" if section == "study" else f"study.{section}.{setting}"
            over = "rows" if name == "without_rows" else SETTINGS[path].over if path in SETTINGS else ""
            if over not in _ANYWHERE | _APPLIES[self.kind]:
                raise ConfigError(f"{_flag_of(name)} does not apply to a study over {KINDS[self.kind].described}; leave it out")

    def _section(self, section: str) -> dict[str, Any]:
        """Return the settings of a table of the study file."""
        given = {name.partition("__")[2]: value for name, value in self.given.items() if name.startswith(f"{section}__")}
        pairs = {name: dict(value) for name, value in given.items() if isinstance(value, tuple) and isinstance(value[0], tuple)}
        return {**given, **pairs}


def _flag_of(name: str) -> str:
    section, _, setting = name.rpartition("__")
    flag = "--" + {"bounds": "bound", "hosts": "host"}.get(setting, setting).replace("_", "-")
    return f"{flag}-seconds" if section == "deadlines" else flag
