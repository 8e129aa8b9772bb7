"""`blindbayes study init`: a study from options; what is missing the wizard asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

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

_OF_COLUMNS = {"holds", "labelled", "key", "bounds", "reveal_to", "duplicates", "n_rows"}
_OF_ROWS = {"without_rows", "quorum", "min_parties"}
_GROUPS: dict[str, type[msgspec.Struct]] = {"privacy": Privacy, "limits": Limits, "estimation": Estimation}


@click.command()
@click.argument("path", metavar="STUDY", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--ask", is_flag=True, help="Ask for whatever is not given; so it does on a terminal if something needed is missing."
)
@option("study.title")
@option("study.codebook", type=click.Path(exists=True, dir_okay=False))
@click.option("--card", "cards", multiple=True, type=shared.FILE, help="A site's card; once per site.")
@click.option("--without-rows", multiple=True, help="A site that brings no rows (and may host a role).")
@option(
    "study.protocol",
    type=click.Choice(sorted({*tasks.known("rows"), *tasks.known("columns")})),
)
@click.option("--holds", multiple=True, help="Over columns: SITE=feature,feature,...; once per site, SITE= for none.")
@option("study.columns.labelled", multiple=True)
@option("study.key", multiple=True)
@option("study.options.bounds", "--bound", "bounds", multiple=True)
@option("study.options.queries", type=int)
@option("study.reveal_to")
@option("study.duplicates")
@option("study.options", "--option", "options", multiple=True, metavar="NAME=VALUE")
@option("study.privacy.epsilon")
@option("study.privacy.delta")
@option("study.privacy.expected_rows")
@option("study.columns.n_rows")
@option("study.limits.quorum")
@option("study.limits.min_parties")
@option("study.limits.min_rows")
@option("study.limits.min_cell")
@option("study.deadlines.step", "--step-seconds", "step", type=float, default=60.0, show_default=True)
@option("study.deadlines.join", "--join-seconds", "join", type=float, default=600.0, show_default=True)
@option("study.deadlines.run", "--run-seconds", "run", type=float, default=3600.0, show_default=True)
@click.pass_context
def init(context: click.Context, /, path: Path | None, ask: bool, **said: Any) -> None:
    r"""Write a STUDY from a codebook and the cards of the sites. On a terminal it asks for what is missing.

    Example:
      blindbayes study init
      blindbayes study init study.toml --title Readmission --codebook codebook.toml \
        --card north.toml --card south.toml --card west.toml
      blindbayes study init study.toml --title Default --codebook codebook.toml --card bank.toml --card telecom.toml \
        --holds bank=income,age --holds telecom=calls --labelled bank --n-rows 5000 --queries 1000 --reveal-to bank
    """
    from blindbayes.cli.commands import wizard

    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name: value for name, value in context.params.items() if sources[name] is ParameterSource.COMMANDLINE}
    missing = [each for each in context.command.params if each.name in _NEEDED and each.name not in given]
    if ask or (missing and wizard.on_terminal()):
        wizard.Wizard(given).run()
        return
    if missing:
        raise click.MissingParameter(ctx=context, param=missing[0])
    over_rows = not (said["holds"] or said["labelled"])
    if wrong := sorted(set(given) & (_OF_COLUMNS if over_rows else _OF_ROWS)):
        kind = "columns: say who holds what with --holds and --labelled" if over_rows else "rows"
        raise ConfigError(
            f"--{wrong[0].replace('bounds', 'bound').replace('_', '-')} is for studies over {kind}, or leave it out"
        )
    rows_task = tasks.task_class(said["protocol"] or "masked_sum")
    if over_rows and "queries" in given and rows_task.model is ModelForm.OPENED:
        raise ConfigError("--queries is for studies over columns, and for other models in shares; leave it out")
    cards = [read_card(card) for card in said["cards"]]
    study = make_study(said["title"], Codebook.from_toml(said["codebook"]), cards, said if over_rows else given)
    answers = study.task.disclosure.answers
    if answers is not None and answers.queries is None:
        raise ConfigError("how many instances may be classified in all? Say --queries: sites refuse a study without a limit")
    target = new_file(str(path))
    target.write_text(study.to_toml(), encoding="utf-8")
    click.echo(f"Wrote {path}. sha256 {study.sha256}")


_NEEDED = {"path", "title", "codebook", "cards"}


def make_study(title: str, book: Codebook, cards: Sequence[Card], said: Mapping[str, Any]) -> StudyFile:
    """Return the study that the options of `study init` describe, under the names of its parameters.

    Besides them `said` may hold any setting of `Privacy`, `Limits` and `Estimation`, and `hosts`. Over columns rows line up if
    `n_rows` is given, else keys match them, and without an epsilon small counters are set to 0: sites ask for it.
    """
    options = {name: _value(text) for name, text in _pairs("--option", said.get("options", ()))}
    if said.get("queries") is not None:
        options["queries"] = said["queries"]
    if said.get("bounds"):
        options["bounds"] = {name: _value(text) for name, text in _pairs("--bound", said["bounds"])}
    deadlines = Deadlines(**{each: said[each] for each in Deadlines.__struct_fields__ if each in said})
    protocol = said.get("protocol")
    if not (said.get("holds") or said.get("labelled")):
        study = RowStudy(book, protocol=protocol or "masked_sum", options=options, **_groups(said))
        without = said.get("without_rows", ())
        parties = [
            Party(each.name, each.identity.hex(), each.name not in without, each.agreement.hex() or None) for each in cards
        ]
        return StudyFile.make(study, title, tuple(parties), hosts=said.get("hosts"), deadlines=deadlines)
    holds = {name: tuple(filter(None, text.split(","))) for name, text in _pairs("--holds", said.get("holds", ()))}
    held = Holdings(holds, tuple(said.get("labelled", ())), said.get("n_rows"))
    parties = [Party(each.name, each.identity.hex()) for each in cards]
    over_columns = _over_columns(book, held, options, protocol, said)
    return StudyFile.make(over_columns, title, tuple(parties), columns=held, deadlines=deadlines)


def _groups(said: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of settings, without what was not said."""
    return {
        name: kind(**{each: said[each] for each in kind.__struct_fields__ if said.get(each) is not None})
        for name, kind in _GROUPS.items()
    }


def _over_columns(
    book: Codebook, held: Holdings, options: dict[str, Any], protocol: str | None, said: Mapping[str, Any]
) -> ColumnStudy | JoinStudy:
    """A study with what sites ask for by default."""
    task = tasks.task_class(protocol or ("joined_sums" if held.n_rows is None else "class_sums"))
    exact = said.get("epsilon") is None
    groups = _groups({"min_cell": Policy().min_cell if task.model is ModelForm.SHARED and exact else 0, **said})
    own = {"options": options, **{name: said[name] for name in ("protocol", "reveal_to") if said.get(name) is not None}}
    if task.aligned:
        return ColumnStudy(book, **own, **groups)
    options.setdefault("min_overlap", Policy().min_overlap)
    one_record = groups["limits"].min_cell or not exact  # an identifier stands for one record then
    duplicates: Duplicates = said.get("duplicates") or ("first" if one_record else "join")
    return JoinStudy(book, key=tuple(said.get("key", ())), duplicates=duplicates, **own, **groups)


def _pairs(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    if wrong := [text for text, (name, sign, _) in zip(texts, pairs, strict=True) if not (name and sign)]:
        raise ConfigError(f"{option} takes NAME=VALUE; {wrong[0]!r} has another form")
    return [(name, value) for name, _, value in pairs]


def _value(text: str) -> Any:
    """A number or a truth value where the text is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)
