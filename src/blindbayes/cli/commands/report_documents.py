"""Commands of `blindbayes report` that convert a release folder: DPIA annex, synthetic rows, ACRO session."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import click

from blindbayes.cli import print_json
from blindbayes.cli.commands.report import command
from blindbayes.cli.options import FILE, JSON, print_result, require_new_path
from blindbayes.errors import ConfigError
from blindbayes.io.files import read_folder, write_folder, write_whole
from blindbayes.io.untrusted import read_limited
from blindbayes.report.acro import ACRO_VERSION, acro_session
from blindbayes.report.checksums import CHECKSUMS, verify_files

_RELEASE = click.argument("release", type=click.Path(exists=True))


def _model_of(release: str) -> tuple[Any, str]:
    """Return the model of a release folder, whose files are verified, or of a model file, and the SHA-256 of its file."""
    from blindbayes import load

    path = Path(release)
    if path.is_dir():
        files = read_folder(path)
        verify_files(files)
        if "model.json" not in files:
            raise ConfigError(
                f"{path.name!r} holds no model.json: a model in shares, an evaluation or a site that learned no result has no "
                "marginals to draw from"
            )
        path = path / "model.json"
    return load(path), hashlib.sha256(path.read_bytes()).hexdigest()


@command.command("dpia")
@click.argument("release", type=click.Path(exists=True, file_okay=False))
@click.option("--cover", "cover_path", type=FILE, help="Cover file (`report cover` prints one) with the officer's answers.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default="dpia.html", show_default=True, help="Page to write."
)
@JSON
def dpia(release: str, cover_path: Path | None, out: Path, as_json: bool) -> None:
    """Write the annex to a data protection impact assessment of a RELEASE folder, as a page to fill in and print.

    It answers from the folder who is involved, which data were read, what left the site, who could learn what, and the risks
    that remain with the numbers of this run. Every statement names the fields that it is made from. What the folder does not
    say is an empty field; --cover fills in the officer's answers. With --json the statements are printed instead.

    Example:
      blindbayes report cover > cover.toml
      blindbayes report dpia release --cover cover.toml --out dpia.html
    """
    from blindbayes.report.cover_sheet import Cover
    from blindbayes.report.dpia import Question, annex, annex_page, read_documents, to_dict

    files = read_folder(release)
    verify_files(files)
    cover = None
    if cover_path is not None:
        title = Cover.from_files(files).title
        cover = Cover.from_toml(read_limited(cover_path), cover_path.name, title=title)
    documents = read_documents(files, cover)
    sections = annex(documents)
    if as_json:
        print_json(to_dict(sections))
        return
    require_new_path(out)
    digest = hashlib.sha256(files[CHECKSUMS]).hexdigest()
    write_whole(out, annex_page(documents, digest).encode(), private=False)
    answers = [each for section in sections for each in section.answers]
    asked = sum(isinstance(each, Question) for each in answers)
    click.echo(f"{out}: {len(answers) - asked} statements from the folder, {asked} questions for you to answer")


@command.command("synthetic")
@_RELEASE
@click.option("--rows", "number", type=int, required=True, help="Number of rows; 0 writes the marginals alone.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default="rows.csv", show_default=True, help="Rows, CSV."
)
@click.option(
    "--marginals",
    "marginals_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Class-by-feature marginals, CSV. [default: marginals.csv beside --out]",
)
@click.option(
    "--measurements",
    "measurements_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the noisy tables with their noise as JSON, for estimators such as mbi.",
)
@click.option("--allow-exact", is_flag=True, help="Agree to rows of a model without privacy, which reveal its counts.")
@JSON
def synthetic(
    release: str,
    number: int,
    out: Path,
    marginals_path: Path | None,
    measurements_path: Path | None,
    allow_exact: bool,
    as_json: bool,
) -> None:
    """Write synthetic rows and class-by-feature marginals of a RELEASE folder or model file.

    Of a private release they cost nothing: they are computed from what was released. In the rows, features are independent
    within a class, whatever they are in the population. Beside the rows, a text file with the same name states both.

    An exact model is refused unless you pass --allow-exact: rows look anonymous and travel further than the model.

    Example:
      blindbayes report synthetic release --rows 10000 --out rows.csv
    """
    from blindbayes.naive_bayes.synthetic import Synthesizer
    from blindbayes.study.tasks.result import csv_of

    model, digest = _model_of(release)
    table_path, notes_path = marginals_path or out.with_name("marginals.csv"), out.with_suffix(".txt")
    named = {table_path: "--marginals", **({out: "--out", notes_path: "--out"} if number else {})}
    targets = [table_path, *([out, notes_path] if number else []), *([measurements_path] if measurements_path else [])]
    if len(set(targets)) < len(targets):
        raise ConfigError("two of the files to write have the same name: rows, notes, marginals and measurements need one each")
    source = Synthesizer(model, allow_exact=allow_exact)
    for path in targets:
        require_new_path(path, named.get(path, "--measurements"))
    rows = source.rows(number) if number else None
    noisy = None if measurements_path is None else source.measurements()

    def columns(table: Any) -> dict[str, Any]:
        return {name: table.column(name) for name in table.column_names}

    for path in targets:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(table_path, csv_of(columns(source.marginals())), private=False)
    lines = [f"marginals: {table_path}"]
    if rows is not None:
        write_whole(out, csv_of(columns(rows)), private=False)
        text = [f"{number} synthetic rows, drawn from the model file with SHA-256 {digest}.", *source.notes]
        write_whole(notes_path, ("\n".join(text) + "\n").encode(), private=False)
        lines.append(f"{number:,} synthetic rows: {out} (about them: {notes_path})")
    if noisy is not None and measurements_path is not None:
        write_whole(measurements_path, (json.dumps(noisy, indent=1, allow_nan=False) + "\n").encode(), private=False)
        lines.append(f"measurements: {measurements_path}")
    facts = {"model": digest, "rows": number, "files": [str(path) for path in targets], "notes": source.notes}
    print_result(facts, [*lines, *source.notes], as_json=as_json)


@command.command("acro")
@click.argument("release", type=click.Path(exists=True, file_okay=False))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="New folder of the session.")
@click.option("--acro-version", default=ACRO_VERSION, show_default=True, help="Version of ACRO that is to load it.")
@JSON
def acro(release: str, out: Path, acro_version: str, as_json: bool) -> None:
    """Write a RELEASE as a session of ACRO, for output checkers who work with ACRO and the SACRO viewer.

    results.json holds each output of disclosure.json with its checks, status and exception; model, figures and statement stand
    beside it. Signatures do not: verify the release itself.

    Example:
      blindbayes report acro release --out for-output-checkers
    """
    files = read_folder(Path(release))
    verify_files(files)
    session = acro_session(files, acro_version)
    write_folder(out, session)
    print_result(
        {"folder": str(out), "files": sorted(session)}, [f"{out}: {len(session)} files, results.json first"], as_json=as_json
    )
