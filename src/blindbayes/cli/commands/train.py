"""`blindbayes train`: fit a model on one table."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from blindbayes.cli import print_json
from blindbayes.cli.options import (
    CODEBOOK,
    DELTA,
    FILE,
    IGNORE_EXTRA,
    JSON,
    LARGE_DELTA,
    LEDGER,
    OMOP,
    open_rows,
    read_passphrase,
    table_options,
)
from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_limited

if TYPE_CHECKING:
    from blindbayes.crypto.signatures import SigningKey
    from blindbayes.data import Source
    from blindbayes.naive_bayes.base import BaseNaiveBayes
    from blindbayes.report.cover_sheet import Cover

WEAK_EPSILON = 10.0  # a note is printed above this
_FOR_RELEASE = {"cover": "--cover", "title": "--title", "owner": "--owner", "site": "--sign"}
_PRIVATE = ("delta", "allow_large_delta", "ledger", "expected_rows", "rows_per_person", "tuning_note")
_FOLDS = 5
_MAX_VALIDATED = 200_000  # rows; cross-validation reads and fits them five times
_READING = ("delimiter", "decimal", "thousands", "missing", "encoding", "quote", "sheet", "map_path")


@click.command()
@click.argument("data")
@CODEBOOK
@click.option("--out", type=click.Path(dir_okay=False), help="Write the model to this file; - prints it.")
@click.option("--release", type=click.Path(file_okay=False), help="Write the model and its documents to this new folder.")
@click.option("--cover", type=FILE, help="With --release: the filled-in output of `report cover`.")
@click.option("--title", help="With --release: its title, if the cover has none.")
@click.option("--owner", help="With --release: the organisation that answers for it.")
@click.option("--sign", "site", type=click.Path(exists=True), help="With --release: sign with the keys of this site's folder.")
@click.option("--passphrase-file", type=FILE, help="File whose first line decrypts the keys of --sign.")
@click.option("--alpha", type=float, default=1.0, show_default=True, help="Laplace smoothing.")
@click.option("--var-smoothing", type=float, default=1e-9, show_default=True, help="Variance added, as a share of the largest.")
@click.option("--epsilon", type=float, help="Privacy loss of the release; without it the model is not private.")
@click.option("--rho", type=float, help="In place of --epsilon: zero-concentrated privacy loss of the release.")
@DELTA
@LARGE_DELTA
@click.option("--expected-rows", type=int, help="With --epsilon: publicly known approximate number of rows.")
@click.option("--rows-per-person", type=int, help="With --epsilon: protect persons, with at most this number of rows each.")
@click.option("--tuning", "tuning_note", help="For the statement: how settings were chosen. [default: assumed, not checked]")
@IGNORE_EXTRA
@OMOP
@table_options
@LEDGER
@JSON
def command(**given: Any) -> None:
    """Fit a model on one table (path or database URL) and write the model file.

    Example:
      blindbayes train visits.parquet --codebook codebook.toml --out model.json
      blindbayes train visits.parquet --codebook codebook.toml --out model.json --epsilon 1 --ledger ledger.jsonl
      blindbayes train visits.parquet --codebook codebook.toml --release release --title "Readmission" --epsilon 1
    """
    from blindbayes import NaiveBayes, PrivateNaiveBayes

    if given["epsilon"] is not None or given["rho"] is not None:
        train(PrivateNaiveBayes, given)
        return
    names = {each.name: each.opts[0] for each in command.params}
    if unused := [names[name] for name in _PRIVATE if given[name]]:
        raise ConfigError(f"{unused[0]} is for a private model: pass --epsilon too")
    train(NaiveBayes, given)


def train(estimator: type[BaseNaiveBayes], given: Mapping[str, Any]) -> None:
    """Fit an estimator with the options of the command, and write the model file, its release or both."""
    out, release = given["out"], given["release"]
    _require_outputs(given)
    cover, signers = (None, {}) if release is None else _cover(given)
    model, summary = _fit(estimator, {**given, "purpose": None if cover is None else cover.title})
    if out == "-":
        from blindbayes.naive_bayes.model_file import dump_model

        click.echo(dump_model(model._record()))
        return
    if out is not None:
        model.save(out)
    if release is not None:
        model.release(release, cover=cover, signers=signers)
    codebook, private = model.approved_codebook_, getattr(model, "statement_", None)
    if given["as_json"]:
        facts = {"model": out, "release": release, "codebook": codebook, "private": private is not None}
        print_json(facts | summary)
        return
    for line in _summary_lines(summary):
        click.echo(line)
    if out is not None:
        click.echo(f"model written to {out}; codebook {codebook[:12]}")
    if release is not None:
        signed = "signed" if signers else "not signed"
        click.echo(f"release written to {release} ({signed}), codebook {codebook[:12]}; open {Path(release) / 'index.html'}")
    for note in _notes(model, None if private is None else private.epsilon, given["ledger"]):
        click.echo(note, err=True)


def _require_outputs(given: Mapping[str, Any]) -> None:
    """Raise before the ledger is charged if the model could not be written."""
    out, release = given["out"], given["release"]
    if out is None and release is None:
        raise ConfigError("nothing would be written: pass --out for the model file, or --release for a folder with documents")
    if release is None and (unused := [name for name, option in _FOR_RELEASE.items() if given[name] is not None]):
        raise ConfigError(f"{_FOR_RELEASE[unused[0]]} is for --release: pass a folder there")
    if out == "-" and release is not None:
        raise ConfigError("--out - prints the model; --release is for a run of its own")
    if out == "-":
        return
    for option, place in (("--out", out), ("--release", release)):
        folder = Path(place).absolute().parent if place is not None else None
        if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise ConfigError(
                f"nothing can be written in the folder {os.fspath(folder)!r}; make it, or choose another {option}"
            )
    if out is not None and Path(out).exists() and not Path(out).is_file():
        raise ConfigError(f"{out!r} is not a regular file; choose another --out")
    if out is not None and Path(out).exists() and not _is_model_file(Path(out)):
        raise ConfigError(f"{out!r} exists and is no model file; choose another --out or move it away")
    if release is not None and Path(release).is_dir() and any(Path(release).iterdir()):
        raise ConfigError("the release folder is not empty; choose another")


def _is_model_file(path: Path) -> bool:
    """Return True for a file that an earlier call wrote; any other is not replaced."""
    with path.open("rb") as file:
        return b'"blindbayes.naive_bayes/' in file.read(1 << 10)


def _fit(estimator: type[BaseNaiveBayes], given: Mapping[str, Any]) -> tuple[BaseNaiveBayes, dict[str, Any]]:
    from blindbayes.cli.screen import progress_bar
    from blindbayes.data.contribution_bound import require_identifier

    codebook = Codebook.from_toml(given["codebook_path"])
    if given["rows_per_person"] is not None:
        require_identifier(codebook)
    accepted = inspect.signature(estimator).parameters
    if "epsilon" in accepted and given["epsilon"] is None and given.get("rho") is None:
        raise ConfigError("a private model needs --epsilon")
    settings = {name: value for name, value in given.items() if name in accepted}
    model = estimator(codebook, extra_columns="ignore" if given["ignore_extra"] else "refuse", **settings)
    reading = {name: given[name] for name in _READING}
    with (
        open_rows(given["data"], codebook, given["omop"], **reading) as table,
        progress_bar("train") as table.watch,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", UserWarning)
        model.fit(table)
        summary = _summary(model, table)
        notes = [f"note: {each.message}" for each in caught if issubclass(each.category, UserWarning)]
        if "rows" in summary:  # of a private model nothing exact is printed
            unreadable = table.unreadable_dates(model.codebook_)
            summary["unreadable_dates"] = {name: each.rows for name, each in unreadable.items()}
            notes += [f"note: feature {name!r}: {each}; it counts as missing" for name, each in unreadable.items()]
        if "epsilon" not in accepted:
            summary["accuracy"] = _cross_validated(model, table)
    for note in notes:
        click.echo(note.replace("var_smoothing=0", "--var-smoothing 0"), err=True)
    return model, summary


def _summary(model: BaseNaiveBayes, table: Source) -> dict[str, Any]:
    """Return what was read: rows, classes, missing values and ignored columns; of a private model only what is public."""
    book: Codebook = model.codebook_
    identifier = [part.column for part in book.identifier.parts] if book.identifier is not None else []
    known = {book.target, *book.names, *identifier}
    summary: dict[str, Any] = {"ignored": [name for name in table.columns if name not in known]}
    statistics = getattr(model, "statistics_", None)
    if hasattr(model, "privacy_"):
        shares = zip(model.classes_, model.class_log_prior_, strict=True)
        return summary | {"noisy_shares": {str(label): math.exp(share) for label, share in shares}}
    if statistics is None:
        return summary
    counts = statistics.class_counts
    rows = int(counts.sum())
    present = {name: int(cells.sum()) for name, cells in statistics.counts.items()}
    present |= {name: int(sum(number)) for name, number in statistics.n.items()}
    return summary | {
        "rows": rows,
        "classes": {label: int(count) for label, count in zip(book.classes, counts, strict=True)},
        "missing": {name: rows - present[name] for name in book.names if present.get(name, rows) < rows},
    }


def _cross_validated(model: BaseNaiveBayes, table: Source) -> float | None:
    """Return the accuracy by cross-validation, or None if the table is elsewhere, small or large."""
    import numpy as np
    import pyarrow as pa
    from sklearn.base import clone

    from blindbayes.data.encode import encode_labels

    book, counts = model.codebook_, model.statistics_.class_counts
    if not table.is_local or not 2 * _FOLDS <= int(counts.sum()) <= _MAX_VALIDATED or (counts > 0).sum() < 2:
        return None
    whole = table.arrow([*book.names, book.target], book)
    folds = np.arange(whole.num_rows) % _FOLDS
    right = 0
    for fold in range(_FOLDS):
        asked = whole.filter(pa.array(folds == fold))
        fitted = clone(model).fit(whole.filter(pa.array(folds != fold)))
        predicted = fitted.predict_joint_log_proba(asked.drop_columns([book.target])).argmax(axis=1)
        right += int((predicted == encode_labels(asked.column(book.target), book)).sum())
    return right / int(whole.num_rows)


def _summary_lines(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    if "rows" in summary:
        classes = ", ".join(f"{label} {count:,}" for label, count in summary["classes"].items())
        lines.append(f"{summary['rows']:,} rows: {classes}")
        missing = ", ".join(f"{name} {count:,}" for name, count in summary["missing"].items())
        lines.append(f"missing values: {missing or 'none'}")
    if "noisy_shares" in summary:
        shares = ", ".join(f"{label} {share:.3f}" for label, share in summary["noisy_shares"].items())
        lines.append(f"class shares, by the noisy counts: {shares}")
    if summary["ignored"]:
        lines.append(f"ignored columns: {', '.join(name or '(no name)' for name in summary['ignored'])}")
    if summary.get("accuracy") is not None:
        largest = max(summary["classes"].values()) / summary["rows"]
        lines.append(
            f"accuracy by {_FOLDS}-fold cross-validation: {summary['accuracy']:.3f} (always the largest class: {largest:.3f})"
        )
    return lines


def _notes(model: BaseNaiveBayes, epsilon: float | None, ledger: str | None) -> list[str]:
    """Return warnings about a model of one class, a weak promise, and a release without a ledger."""
    if epsilon is None:
        one_class = (model.statistics_.class_counts > 0).sum() < 2
        return ["note: all rows have one class, so this model always predicts it; is this the whole table?"] * bool(one_class)
    notes = []
    if epsilon > WEAK_EPSILON:
        notes.append(
            f"note: epsilon {epsilon:g} promises little: the release may be e^{epsilon:g} times as likely with a person's row "
            "as without it; 1 is usual, 10 is high"
        )
    if ledger is None:
        notes.append("no ledger was charged: nothing records what this table has spent; --ledger does")
    return notes


def _cover(given: Mapping[str, Any]) -> tuple[Cover, dict[str, SigningKey]]:
    """Return the cover of the release, and the key that signs it."""
    from blindbayes.net.identity import Identity
    from blindbayes.report.cover_sheet import Cover

    path, site = given["cover"], given["site"]
    content, name = (read_limited(path), path.name) if path is not None else (b"", "")
    cover = Cover.from_toml(content, name, title=given["title"], owner=given["owner"])
    if site is None:
        return cover, {}
    folder = Path(site) if Path(site).is_dir() else Path(site).parent
    identity = Identity.load(folder, passphrase=read_passphrase(given["passphrase_file"]))
    return cover, {identity.name: identity.signing}
