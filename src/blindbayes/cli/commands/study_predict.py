"""`blindbayes study predict`: classify with a model in shares."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from blindbayes.agent.client import OperatorClient
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.cli import print_json
from blindbayes.cli.options import HOME, JSON, copy_failed, require_new_path
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.study.file import StudyFile
from blindbayes.study.study import learner_of
from blindbayes.study.tasks.traits import ModelForm


@click.command("predict")
@click.argument("path", metavar="STUDY", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model", help="Training run; needed if this site has shares of several models of the study.")
@click.option("--batch", required=True, help="Name of these instances: the same at every site, used once.")
@click.option("--table", help="This site's columns of the instances, in the agreed order: CSV, Parquet, URL.")
@click.option("--count", type=int, help="Number of instances, for a site that holds only the class, or over rows does not ask.")
@click.option("--keep", multiple=True, help="Column of --table to copy to the output, such as a record number.")
@click.option("--to", help="Score the table of this site, for it alone: over rows, or rows matched by an identifier.")
@click.option(
    "--scope",
    type=click.Choice(["everybody", "shared"]),
    default="everybody",
    show_default=True,
    help="With --to: `shared` scores only people whom the other site has too, and reveals who they are.",
)
@click.option(
    "--evaluate", is_flag=True, help="Open totals by true and predicted class alone; the class holder's table has the class."
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the classes to this file: .csv or .parquet."
)
@HOME
@JSON
def predict(
    path: Path, model: str | None, table: str | None, out: Path | None, home: SiteFolder, as_json: bool, **asked: Any
) -> None:
    """Classify instances together with the other parties of a STUDY whose model is in shares. Every site has to start this.

    Only the class is opened, to the parties that the study names. The query budget of every site's share is charged. All
    sites use the same instances in the same order; where the study matches rows by an identifier, --to scores the people of
    one site instead, in any order, and reveals no identifier to the others.

    Example:
      blindbayes study predict study.toml --batch monday --table patients.csv --keep number --out classes.csv --config hospital
    """
    study = StudyFile.from_toml(path)
    if study.task.model is ModelForm.OPENED:
        raise ConfigError("this study ends in a model file, not in shares: classify with `blindbayes predict`")
    if out is not None:
        if out.suffix not in (".csv", ".parquet"):
            raise ConfigError(f"{out.name}: --out must end in .csv or .parquet")
        if not out.parent.is_dir():
            raise ConfigError(f"the folder {out.parent} does not exist; make it first")
        require_new_path(out)
    if table is not None and Path(table).exists():
        table = os.path.abspath(table)  # the agent runs in another folder
    elif table is not None and re.fullmatch(r"[^:*?\[]*\.(csv|parquet)", table) and not (home.folder / table).exists():
        raise ConfigError(f"{table!r} is neither where the command was started nor in the site's folder; nothing was started")
    asked |= {"study": study.sha256, "model": model or _only_model(home, study), "rows": table}
    ended = follow(home, "/predictions", asked, as_json=as_json)
    classes = Path(ended["release"]) / "classes.csv"
    if out is not None and classes.exists():
        try:
            copy_classes(classes, out)
        except OSError as problem:
            raise copy_failed(out, classes, problem) from None
    table_of_totals = Path(ended["release"]) / "evaluation.md"
    if as_json:
        print_json(ended)
    elif table_of_totals.exists():
        click.echo(f"{table_of_totals.read_text()}\nDone in {ended['seconds']:.1f} s. Release: {ended['release']}")
    elif classes.exists():
        click.echo(f"Done in {ended['seconds']:.1f} s. Classes: {out or classes}")
    else:
        learner = asked["to"] or learner_of(study.agreement.study)
        click.echo(f"Done in {ended['seconds']:.1f} s. The classes went to {learner}. Report: {ended['release']}")


def _only_model(home: SiteFolder, study: StudyFile) -> str:
    runs = [str(each["run"]) for each in home.shares.all() if each["study"] == study.sha256]
    if len(runs) != 1:
        what = "several models of this study" if runs else "no share of a model of this study"
        raise ConfigError(f"this site has {what}: `blindbayes site shares` lists them; name one with --model")
    return runs[0]


def copy_classes(classes: Path, out: Path) -> None:
    """Copy the classes to a file that only its owner can read: they are listed with the site's record numbers."""
    out.touch(mode=0o600, exist_ok=False)
    if out.suffix == ".csv":
        out.write_bytes(classes.read_bytes())
        return
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    guessed = pyarrow.csv.read_csv(classes)
    as_text = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(guessed.column_names, pyarrow.string()))
    texts = pyarrow.csv.read_csv(classes, convert_options=as_text)
    # A guessed type must not change a text: 0012 is not the number 12.
    columns = {
        name: guessed[name] if guessed[name].cast(pyarrow.string()).equals(texts[name]) else texts[name]
        for name in guessed.column_names
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), out)


def follow(home: SiteFolder, path: str, asked: dict[str, Any], *, as_json: bool) -> dict[str, Any]:
    """Start a run at the site's agent and wait for its end. Raises the error that ended it."""
    client = OperatorClient(home.folder)

    def tell(text: str) -> None:
        if not as_json:
            click.echo(text, err=True)

    ended = client.follow(client.start(path, asked, tell), tell)
    if ended["state"] == "done":
        return ended
    if as_json:
        print_json(ended)
        sys.exit(ended.get("exit_code", BlindbayesError.code))
    error = BlindbayesError(ended["message"] if "message" in ended else ended["text"])
    error.code = ended.get("exit_code", BlindbayesError.code)
    raise error
