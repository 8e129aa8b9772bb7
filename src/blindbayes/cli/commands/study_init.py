"""`blindbayes study init`: a study from options; what is missing the wizard asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from blindbayes.cli import options as shared
from blindbayes.cli.answers import new_file
from blindbayes.cli.commands.settings import option
from blindbayes.codebook import Codebook
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import ConfigError
from blindbayes.net.identity import Card, read_card
from blindbayes.study import ColumnStudy, JoinStudy, RowStudy
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, Estimation, Limits, Privacy, StudyFile
from blindbayes.study.roster import Party
from blindbayes.study.study import Duplicates
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.tasks.traits import ModelForm

_COLUMN_OPTIONS = {"holds", "labelled", "key", "bounds", "reveal_to", "duplicates", "n_rows"}
_ROW_OPTIONS = {"without_rows", "quorum", "min_parties"}
_NEEDED = {"path", "title", "codebook", "cards"}
_GROUPS: dict[str, type[msgspec.Struct]] = {"privacy": Privacy, "limits": Limits, "estimation": Estimation}
_SETTINGS = (
    *("study.privacy.epsilon", "study.privacy.delta", "study.privacy.expected_rows", "study.columns.n_rows"),
    *("study.limits.quorum", "study.limits.min_parties", "study.limits.min_rows", "study.limits.min_cell"),
    "study.estimation.held_out",
)


def _settings(command: Any) -> Any:
    """Add an option for each setting that `study init` takes by its own name, and for the deadlines."""
    for name in reversed(Deadlines.__struct_fields__):
        command = option(f"study.deadlines.{name}", f"--{name}-seconds", name)(command)
    for path in reversed(_SETTINGS):
        command = option(path)(command)
    return command


@click.command()
@click.argument("path", metavar="STUDY", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--ask", is_flag=True, help="Ask for what is not given, as on a terminal if something needed is missing.")
@option("study.title")
@option("study.codebook", type=click.Path(exists=True, dir_okay=False))
@click.option("--card", "cards", multiple=True, type=shared.FILE, help="A site's card; once per site.")
@click.option("--without-rows", multiple=True, help="A site that brings no rows (and may host a role).")
@option("study.protocol", type=click.Choice(sorted({*tasks.known("rows"), *tasks.known("columns")})))
@click.option("--holds", multiple=True, help="Over columns: SITE=feature,feature,...; once per site, SITE= for none.")
@option("study.columns.labelled", multiple=True)
@option("study.key", multiple=True)
@option("study.options.bounds", "--bound", "bounds", multiple=True)
@option("study.options.queries", type=int)
@option("study.reveal_to")
@option("study.duplicates")
@option("study.options", "--option", "options", multiple=True, metavar="NAME=VALUE")
@_settings
@click.pass_context
def init(context: click.Context, /, ask: bool, **given: Any) -> None:
    r"""Write a STUDY from a codebook and the cards of the sites. On a terminal it asks for what is missing.

    Example:
      blindbayes study init
      blindbayes study init study.toml --title Readmission --codebook codebook.toml \
        --card north.toml --card south.toml --card west.toml
      blindbayes study init study.toml --title Default --codebook codebook.toml --card bank.toml --card telecom.toml \
        --holds bank=income,age --holds telecom=calls --labelled bank --n-rows 5000 --queries 1000 --reveal-to bank
    """
    from blindbayes.cli.commands import wizard

    given = {name: value for name, value in given.items() if value is not None and value != ()}
    missing = [each for each in context.command.params if each.name in _NEEDED and each.name not in given]
    if ask or (missing and wizard.on_terminal()):
        wizard.Wizard(given).run()
        return
    if missing:
        raise click.UsageError(f"Missing {', '.join(each.get_error_hint(context) for each in missing)}.")
    if problems := _problems(given):
        raise ConfigError("; ".join(problems))
    cards = [read_card(card) for card in given["cards"]]
    study = make_study(given["title"], Codebook.from_toml(given["codebook"]), cards, given)
    answers = study.task.disclosure.answers
    if answers is not None and answers.queries is None:
        raise ConfigError("how many instances may be classified in all? Say --queries: sites refuse a study without a limit")
    new_file(str(given["path"])).write_text(study.to_toml(), encoding="utf-8")
    click.echo(f"Wrote {given['path']}. sha256 {study.sha256}")


def _problems(given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the options together: those that are for another kind of study."""
    over_rows = not _over_columns(given)
    kind = "columns: say who holds what with --holds and --labelled" if over_rows else "rows"
    problems = [
        f"--{name.replace('bounds', 'bound').replace('_', '-')} is for studies over {kind}, or leave it out"
        for name in sorted(set(given) & (_COLUMN_OPTIONS if over_rows else _ROW_OPTIONS))
    ]
    task = tasks.task_class(given.get("protocol", "masked_sum"))
    if over_rows and "queries" in given and task.model is ModelForm.OPENED:
        problems.append("--queries is for studies over columns, and for other models in shares; leave it out")
    return problems


def _over_columns(given: Mapping[str, Any]) -> bool:
    return bool(given.get("holds") or given.get("labelled"))


def make_study(title: str, book: Codebook, cards: Sequence[Card], given: Mapping[str, Any]) -> StudyFile:
    """Return the study that the options of `study init` describe, under the names of its parameters.

    Besides them `given` may hold any setting of `Privacy`, `Limits` and `Estimation`, and `hosts`. Over columns rows line up if
    `n_rows` is given, else an identifier matches them, and without an epsilon small counters are set to 0, as sites ask.
    """
    options = {name: _value(text) for name, text in _pairs("--option", given.get("options", ()))}
    if given.get("queries") is not None:
        options["queries"] = given["queries"]
    if given.get("bounds"):
        options["bounds"] = {name: _value(text) for name, text in _pairs("--bound", given["bounds"])}
    deadlines = Deadlines(**{each: given[each] for each in Deadlines.__struct_fields__ if each in given})
    if not _over_columns(given):
        study = RowStudy(book, protocol=given.get("protocol", "masked_sum"), options=options, **_groups(given))
        without = given.get("without_rows", ())
        parties = [
            Party(each.name, each.identity.hex(), each.name not in without, each.agreement.hex() or None) for each in cards
        ]
        return StudyFile.make(study, title, tuple(parties), hosts=given.get("hosts"), deadlines=deadlines)
    holds = {name: tuple(filter(None, text.split(","))) for name, text in _pairs("--holds", given.get("holds", ()))}
    columns = Holdings(holds, tuple(given.get("labelled", ())), given.get("n_rows"))
    parties = [Party(each.name, each.identity.hex()) for each in cards]
    over_columns = _columns_study(book, columns, options, given)
    return StudyFile.make(over_columns, title, tuple(parties), columns=columns, deadlines=deadlines)


def _groups(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: kind(**{each: given[each] for each in kind.__struct_fields__ if given.get(each) is not None})
        for name, kind in _GROUPS.items()
    }


def _columns_study(
    book: Codebook, columns: Holdings, options: dict[str, Any], given: Mapping[str, Any]
) -> ColumnStudy | JoinStudy:
    """Return a study over columns with what sites ask for by default."""
    task = tasks.task_class(given.get("protocol") or ("joined_sums" if columns.n_rows is None else "class_sums"))
    exact = given.get("epsilon") is None
    groups = _groups({"min_cell": Policy().min_cell if task.model is ModelForm.SHARED and exact else 0, **given})
    own = {"options": options, **{name: given[name] for name in ("protocol", "reveal_to") if name in given}}
    if task.aligned:
        return ColumnStudy(book, **own, **groups)
    if "min_overlap" in task.params.__struct_fields__:
        options.setdefault("min_overlap", Policy().min_overlap)
    one_record = groups["limits"].min_cell or not exact  # an identifier stands for one record then
    duplicates: Duplicates = given.get("duplicates") or ("first" if one_record else "join")
    return JoinStudy(book, key=tuple(given.get("key", ())), duplicates=duplicates, **own, **groups)


def _pairs(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    if wrong := [text for text, (name, sign, _) in zip(texts, pairs, strict=True) if not (name and sign)]:
        raise ConfigError(f"{option} takes NAME=VALUE; {wrong[0]!r} has another form")
    return [(name, value) for name, _, value in pairs]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)
