"""Release folders: written from what the roles of a run returned, and verified."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from blindbayes.agent.approvals.summary import classifies, learners_of
from blindbayes.errors import ConfigError, DataError
from blindbayes.io.files import make_private_folder, sync, write_folder
from blindbayes.net.identity import Identity
from blindbayes.report.checksums import seal_files
from blindbayes.report.manifest import RUN, STUDY, read_manifest
from blindbayes.report.receipts import RECEIPTS, receipts_text
from blindbayes.report.verification import NamedParties, Verification, verify_release
from blindbayes.study.file import StudyFile
from blindbayes.study.tasks.sums import SumTask


def check_release(files: Mapping[str, bytes], keys: Mapping[str, bytes]) -> tuple[StudyFile, Verification]:
    """Return the study of a release folder and its verification by the reader's own keys."""
    study = study_of(files)
    named = NamedParties(
        study.roster.sha256,
        study.identities,
        {role: study.host(role) for role in study.roles},
        study.contributors,
        study.setting.quorum_size if isinstance(study.task, SumTask) else len(study.contributors),
        learners_of(study),
        classifies(study),
    )
    return study, verify_release(files, named, keys)


def study_of(files: Mapping[str, bytes]) -> StudyFile:
    """Return the study of a release folder; it must be the one that run.json names."""
    if RUN not in files or STUDY not in files:
        raise ConfigError(
            "no site took part in this release: it is a simulation in one process, or of one table, so nobody can vouch for it "
            "but its maker. `blindbayes report show` compares its files with their checksums"
        )
    try:
        study = StudyFile.from_text(files[STUDY].decode())
    except UnicodeDecodeError:
        raise DataError(f"{STUDY} is not readable; ask for the release again") from None
    study.require_signatures()
    study.require_changes()
    if study.sha256 != read_manifest(files).facts["study"]:
        raise DataError(f"{STUDY} is not the study of this run; ask for the release again")
    return study


def write_release(
    folder: Path,
    run_id: str,
    study: StudyFile,
    result: Callable[[], Any],
    lost: Sequence[str] = (),
    identity: Identity | None = None,
    receipts: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a release with the receipts of the run's roles, signed by this site, whole or not at all.

    A resumed run may find it written already.
    """
    final = folder / run_id
    if final.exists():
        return final
    draft = folder / f".{run_id}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    make_private_folder(folder)
    released = result()
    made: dict[str, bytes] = released.files()
    known = {"study": study.sha256, "codebook": study.book.sha256, "run": run_id, "title": study.title, **released.known}
    if isinstance(study.task, SumTask):
        known["went_on_without"] = list(lost)
    made["run.json"] = (json.dumps(known, indent=2) + "\n").encode()
    made["study.toml"] = study.to_toml().encode()
    if receipts:
        identities = {role: study.identity(role) for role in study.roles}
        included = known.get("included")
        left_out = None if included is None else set(study.contributors) - set(included)
        made[RECEIPTS] = receipts_text(study.roster.sha256, run_id, identities, receipts, left_out)
    write_folder(draft, seal_files(made, None if identity is None else {identity.name: identity.signing}))
    for path in sorted(draft.rglob("*")):  # the journal, which could write it again, is erased next
        sync(path)
    sync(draft)
    draft.rename(final)
    sync(folder)
    return final
