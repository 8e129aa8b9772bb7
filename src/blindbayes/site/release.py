"""From what the roles of a run returned to the release folder."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv as pa_csv

from blindbayes.errors import PeerProtocolError
from blindbayes.protocol.columns import Columns
from blindbayes.protocol.joined_scores import Hidden
from blindbayes.report import About, LeakReport, leak_report, run_files, seal_files
from blindbayes.scheme import aligned, joined, result, scoring
from blindbayes.storage.files import make_private_folder, sync
from blindbayes.storage.folder import write_folder
from blindbayes.study.file import NOISY, StudyFile
from blindbayes.transport.driver import Finished
from blindbayes.transport.identity import Identity
from blindbayes.transport.memory import Outcome
from blindbayes.wire.transcript import Cost, Keep, Transcript


def outcome_of(finished: Mapping[str, Finished]) -> Outcome:
    """The roles of this site as a driver's outcome. Rounds and other sites' cost are not seen from here."""
    transcript = Transcript(Keep.COUNTS, received={name: Counter(each.received) for name, each in finished.items()})
    for each in finished.values():  # a message between two seats of this site is seen twice, and is one
        transcript.traffic |= {way: amount for way, amount in each.traffic.items() if way not in transcript.traffic}
    cost = Cost(parties={name: each.cost for name, each in finished.items()})
    cost.messages = sum(each.cost.sent for each in finished.values())
    cost.bytes = sum(each.cost.sent_bytes for each in finished.values())
    outputs = {name: each.value for name, each in finished.items()}
    opened = {name: each.opened for name, each in finished.items()}
    return Outcome(outputs, transcript, cost, opened, None, None, {}, 0)


def about_run(study: StudyFile, run_id: str) -> About:
    """Which run it was, for the leak report."""
    today = time.strftime("%Y-%m-%d", time.gmtime())
    if study.protocol == NOISY:
        holds = {name: (*held, study.book.target) for name, held in study.noisy.owners.items() if held}
        return About(study.title, study.sha256, run_id, today, study.names, holds, study.hosts)
    if study.partition == "columns":
        agreed = study.agreed
        held = agreed if isinstance(agreed, Columns) else agreed.columns
        return result.about_columns(held, study.sha256, study.title, run_id, today)
    return About(study.title, study.sha256, run_id, today, study.names, hosts=study.hosts)


def write_release(
    folder: Path, run_id: str, study: StudyFile, finished: Mapping[str, Finished], identity: Identity | None = None
) -> Path:
    """Write what this site learned of a sum."""
    totals = [each.value for each in finished.values() if each.value is not None]
    outcome, about = outcome_of(finished), about_run(study, run_id)

    def files() -> dict[str, bytes]:
        if not totals:
            statement = f"Study {study.sha256}\n\nThis site contributed to the sum and did not learn it."
            names, size, transcript = (study.study.protocol,), len(study.setting.contributors), outcome.transcript
            report = leak_report(
                names, size, transcript.received, outcome.opened, transcript.entries, (), transcript.traffic, about
            )
            return run_files(report, outcome.cost, statement)
        if any(other.included != totals[0].included or (other.words != totals[0].words).any() for other in totals[1:]):
            raise PeerProtocolError("two roles of this site learned different totals")
        found = study.study.result(study.setting, totals[0], outcome, None, agreed=study.sha256)
        return replace(found, report=None if found.report is None else replace(found.report, about=about)).files()

    facts = {
        "included": list(totals[0].included) if totals else None,
        "went_on_without": sorted({name for each in finished.values() for name in each.lost}),
    }
    return _write(folder, run_id, study, files, facts, identity)


def write_training(folder: Path, run_id: str, study: StudyFile, finished: Mapping[str, Finished], identity: Identity) -> Path:
    """Write the reports of a training run over columns. The share is no part of it."""
    agreed, outcome = study.agreed, outcome_of(finished)

    def files() -> dict[str, bytes]:
        if isinstance(agreed, Columns):
            statement = aligned.training_statement(study.study, agreed, study.sha256)
        else:
            overlaps = next(iter(finished.values())).value.overlaps
            statement = joined.training_statement(study.study, agreed, study.sha256, overlaps)
        names = ("transfer", study.protocol, "shared_model")
        report = result.column_report(names, outcome, parties=len(study.parties), about=about_run(study, run_id))
        return run_files(report, outcome.cost, statement)

    return _write(folder, run_id, study, files, {"included": list(study.names)}, identity)


def write_histograms(folder: Path, run_id: str, study: StudyFile, finished: Mapping[str, Finished], identity: Identity) -> Path:
    """Write the miner's model from noisy histograms, or the report of a site that released its own."""
    outcome, about, noisy = outcome_of(finished), about_run(study, run_id), study.noisy

    def files() -> dict[str, bytes]:
        report = noisy.report(outcome, about)
        released = next((each.value for each in finished.values() if each.value is not None), None)
        if released is None:
            return run_files(report, outcome.cost, noisy.statement(study.sha256))
        return replace(noisy.result(released, outcome, study.sha256), report=report).files()

    return _write(folder, run_id, study, files, {"included": list(noisy.names)}, identity)


def write_classes(
    folder: Path,
    run_id: str,
    study: StudyFile,
    finished: Mapping[str, Finished],
    identity: Identity,
    facts: Mapping[str, Any],
    classes: Mapping[str, Any] | None,
    hidden: Hidden | None = None,
) -> Path:
    """Write the reports of a prediction run, and for a learner the classes; `hidden`: people were scored by identifier."""
    outcome = outcome_of(finished)
    size, about = len(study.parties), about_run(study, run_id)

    def words() -> tuple[LeakReport, str]:
        head = f"Study {study.sha256}\n\nModel of run {facts['model']}; batch {facts['batch']}"
        if hidden is not None:
            report = result.column_report(scoring.PROTOCOLS, outcome, parties=size, about=about)
            return replace(report, follows=scoring.what_follows(hidden)), f"{head}.\n\n" + scoring.scoring_statement(hidden)
        learners = "every party" if study.reveal_to == "all" else study.reveal_to
        statement = "\n\n".join(
            (
                f"{head}: {facts['instances']} instances.",
                f"The class of each instance was opened, to {learners}, and nothing else. The query budget of every party's "
                "share was charged before anything was computed. Repeated queries let the model be read off.",
                "Security: parties that follow the protocol and look at what they received (semi-honest), no dealer.",
            )
        )
        return result.column_report(("transfer", "shared_argmax"), outcome, parties=size, about=about), statement

    def files() -> dict[str, bytes]:
        report, statement = words()
        made = run_files(report, outcome.cost, statement)
        if classes is not None:
            made["classes.csv"] = csv_of(classes)
        return made

    return _write(folder, run_id, study, files, dict(facts), identity)


def csv_of(named: Mapping[str, Any]) -> bytes:
    """Columns as CSV."""
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(pa.table(dict(named)), sink)
    return bytes(sink.getvalue())


def _write(
    folder: Path,
    run_id: str,
    study: StudyFile,
    files: Callable[[], dict[str, bytes]],
    facts: Mapping[str, Any],
    identity: Identity | None,
) -> Path:
    """A release, signed by this site: written whole or not at all. A run taken up again finds it written."""
    final = folder / run_id
    if final.exists():
        return final
    draft = folder / f".{run_id}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    make_private_folder(folder)
    made = files()
    known = {"study": study.sha256, "codebook": study.book.sha256, "run": run_id, "title": study.title, **facts}
    made["run.json"] = (json.dumps(known, indent=2) + "\n").encode()
    made["study.toml"] = study.to_toml().encode()
    write_folder(draft, seal_files(made, None if identity is None else {identity.name: identity.signing}))
    for path in sorted(draft.rglob("*")):  # the run's end follows, and with it goes the journal that could write it again
        sync(path)
    sync(draft)
    draft.rename(final)
    sync(folder)
    return final
