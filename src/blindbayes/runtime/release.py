"""From what the roles of a run returned to the release folder."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from blindbayes.errors import PeerProtocolError
from blindbayes.report import leak_report, run_files, seal_files
from blindbayes.runtime.driver import Finished
from blindbayes.runtime.files import make_private_folder
from blindbayes.runtime.folder import write_folder
from blindbayes.runtime.identity import Identity
from blindbayes.runtime.memory import Outcome
from blindbayes.runtime.transcript import Cost, Keep, Transcript
from blindbayes.study.file import StudyFile


def outcome_of(finished: Mapping[str, Finished]) -> Outcome:
    """The roles of this site as a driver's outcome. Rounds and other sites' cost are not seen from here."""
    transcript = Transcript(Keep.COUNTS, received={name: Counter(each.received) for name, each in finished.items()})
    cost = Cost(parties={name: each.cost for name, each in finished.items()})
    cost.messages = sum(each.cost.sent for each in finished.values())
    cost.bytes = sum(each.cost.sent_bytes for each in finished.values())
    outputs = {name: each.value for name, each in finished.items()}
    opened = {name: each.opened for name, each in finished.items()}
    return Outcome(outputs, transcript, cost, opened, None, None, {}, 0)


def write_release(
    folder: Path, run_id: str, study: StudyFile, finished: Mapping[str, Finished], identity: Identity | None = None
) -> Path:
    """Write what this site learned, signed by it. Written whole or not at all; a run taken up again writes the same."""
    totals = [each.value for each in finished.values() if each.value is not None]
    final = folder / run_id
    if final.exists():
        return final
    draft = folder / f".{run_id}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    make_private_folder(folder)
    outcome = outcome_of(finished)
    if totals:
        if any(other.included != totals[0].included or (other.words != totals[0].words).any() for other in totals[1:]):
            raise PeerProtocolError("two roles of this site learned different totals")
        files = study.study.result(study.setting, totals[0], outcome, None, agreed=study.sha256).files()
    else:
        statement = f"Study {study.sha256}\n\nThis site contributed to the sum and did not learn it."
        names = (study.study.protocol,)
        size, transcript = len(study.setting.contributors), outcome.transcript
        report = leak_report(names, size, transcript.received, outcome.opened, transcript.entries)
        files = run_files(report, outcome.cost, statement)
    facts = {
        "study": study.sha256,
        "codebook": study.book.sha256,
        "run": run_id,
        "title": study.title,
        "included": list(totals[0].included) if totals else None,
        "went_on_without": sorted({name for each in finished.values() for name in each.lost}),
    }
    files["run.json"] = (json.dumps(facts, indent=2) + "\n").encode()
    files["study.toml"] = study.to_toml().encode()
    write_folder(draft, seal_files(files, None if identity is None else {identity.name: identity.signing}))
    draft.rename(final)
    return final
