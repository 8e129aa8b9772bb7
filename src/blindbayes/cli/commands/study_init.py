"""`blindbayes study init`: a study from flags, one for each setting of a study file and each option of a protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
import msgspec

from blindbayes.cli import options as shared
from blindbayes.cli.commands.settings import FIELDS
from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError
from blindbayes.io.files import write_whole
from blindbayes.net.identity import Card, read_card
from blindbayes.study.file import StudyFile
from blindbayes.study.form import plain_type, plain_value
from blindbayes.study.roster import Party
from blindbayes.study.settings import SETTINGS, option_lines
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.writing import Draft, Problem, problems_of

_NO_FLAG = {"title", "kind", "protocol", "options", "codebook", "hosts", "changes", "signatures", "format", "holds"}
_NO_FLAG |= {"candidates"}  # tables: they are written in the file


def _text_pair(text: str) -> tuple[str, str]:
    """Return the two sides of NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _pair(text: str) -> tuple[str, Any]:
    name, value = _text_pair(text)
    return name, plain_value(value)


def _flag(section: str, name: str, kind: Any, text: str, default: Any = None) -> click.Option:
    """Return the flag of a setting or option, by its type."""
    plain = plain_type(kind)
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
        more["type"] = plain or plain_value
    return click.Option([flag, f"{section}__{name}"], **more)


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
    parties = [Party(card.name, card.identity.hex(), True, card.key) for card in cards]
    draft = Draft(title, book, parties, _kind(settings), settings)
    problems = problems_of(draft)
    texts = [_with_flags(problem) for problem in problems]
    if len(problems) == 1:
        raise type(problems[0].error)(texts[0])
    if problems:
        raise ConfigError("\n  ".join(["the study has several faults:", *texts]))
    return draft.study()


def _with_flags(problem: Problem) -> str:
    flags = " or ".join(map(_flag_of, problem.settings))
    return f"{problem.error} ({flags})" if flags else str(problem.error)


def _kind(given: Mapping[str, Any]) -> str:
    """Return the kind of study. Over columns, rows line up if their number is given."""
    protocol = tasks.task_class(given["protocol"]) if "protocol" in given else None
    over_columns = any(name in given for name in ("holds", "columns__labelled"))
    if not over_columns and (protocol is None or "rows" in protocol.partitions):
        return "rows"
    aligned = "columns__n_rows" in given if protocol is None else protocol.aligned
    return "columns" if aligned else "join"


def _flag_of(name: str) -> str:
    section, _, setting = name.rpartition("__")
    if setting == "codebook":
        return "in the codebook"
    flag = "--" + {"bounds": "bound", "hosts": "host", "parties": "card"}.get(setting, setting).replace("_", "-")
    return f"{flag}-seconds" if section == "deadlines" else flag
