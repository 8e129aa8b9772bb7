"""`blindbayes export`: convert a model file to PMML, ONNX or skops."""

from __future__ import annotations

from pathlib import Path

import click

from blindbayes._lazy import need
from blindbayes.errors import ConfigError


@click.command()
@click.argument("model_path", metavar="MODEL", type=click.Path(dir_okay=False))
@click.argument("out", type=click.Path(dir_okay=False))
def command(model_path: str, out: str) -> None:
    """Write a model file as PMML (.pmml), ONNX (.onnx) or skops (.skops), by the ending of OUT.

    Example:
      blindbayes export model.json model.pmml
    """
    from blindbayes import load
    from blindbayes.naive_bayes.export import to_onnx, to_pmml

    model = load(model_path)
    target = Path(out)
    if target.exists():
        raise ConfigError(f"{out!r} exists; choose another path or move it away")
    if target.suffix == ".pmml":
        target.write_text(to_pmml(model.parameters_, label_kind=model.label_kind_), encoding="utf-8")
    elif target.suffix == ".onnx":
        target.write_bytes(to_onnx(model.parameters_, label_kind=model.label_kind_).SerializeToString())
    elif target.suffix == ".skops":
        need("skops.io").dump(model, target)
    else:
        raise ConfigError("the output file must end in .pmml, .onnx or .skops")
    click.echo(f"written to {out}")
