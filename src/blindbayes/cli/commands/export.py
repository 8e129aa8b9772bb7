"""`blindbayes export`: convert a model file to PMML, ONNX, SQL or skops, and a release folder to an MLflow model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from blindbayes._lazy import need
from blindbayes.cli.options import require_new_path
from blindbayes.errors import ConfigError

if TYPE_CHECKING:
    from blindbayes.naive_bayes.export.sql import Dialect

_ENDINGS = (".pmml", ".onnx", ".sql", ".skops")


@click.command()
@click.argument("model_path", metavar="MODEL", type=click.Path())
@click.argument("out", type=click.Path())
@click.option("--table", help="Table that the query of a .sql file classifies, such as analysis.visits.")
@click.option("--dialect", type=click.Choice(["standard", "spark"]), default="standard", help="Quotes of a .sql file.")
def command(model_path: str, out: str, table: str | None, dialect: Dialect) -> None:
    """Write a model file as PMML (.pmml), ONNX (.onnx), SQL (.sql) or skops (.skops), by the ending of OUT.

    SQL is one SELECT that adds the class and its probabilities to the columns of a table.

    MODEL is a model file or a release folder. A release folder is written as an MLflow model (flavour python_function), with
    statement, leak report and signatures, if OUT has none of these endings.

    Example:
      blindbayes export model.json model.pmml
      blindbayes export model.json model.sql --table visits
      blindbayes export release mlflow-model
    """
    from blindbayes.cli.commands.explain import load_model
    from blindbayes.naive_bayes.export import to_onnx, to_pmml, to_sql

    target = Path(out)
    require_new_path(target)
    if Path(model_path).is_dir() and target.suffix not in _ENDINGS:
        from blindbayes.naive_bayes.export.mlflow_pyfunc import save_to_mlflow

        save_to_mlflow(model_path, target)
        click.echo(f"written to {out}; `mlflow.pyfunc.load_model({out!r})` loads it")
        return
    model = load_model(model_path)
    if target.suffix == ".pmml":
        target.write_text(to_pmml(model.parameters_, label_kind=model.label_kind_), encoding="utf-8")
    elif target.suffix == ".onnx":
        target.write_bytes(to_onnx(model.parameters_, label_kind=model.label_kind_).SerializeToString())
    elif target.suffix == ".sql":
        if table is None:
            raise ConfigError("a query needs the name of its table: --table visits")
        target.write_text(to_sql(model.parameters_, table, dialect=dialect), encoding="utf-8")
    elif target.suffix == ".skops":
        need("skops.io").dump(model, target)
    else:
        raise ConfigError(f"the output file must end in {', '.join(_ENDINGS)}; a release folder becomes an MLflow model")
    click.echo(f"written to {out}")
