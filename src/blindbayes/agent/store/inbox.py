"""The study files that a site has: `studies/` holds those that wait for a decision, as text that people or sites brought."""

from __future__ import annotations

from pathlib import Path

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.files import make_private_folder, write_whole
from blindbayes.study.file import StudyFile

MAX_STUDIES = 200
_parsed: dict[Path, tuple[int, StudyFile | str]] = {}


def inbox(home: SiteFolder) -> tuple[dict[str, StudyFile], dict[str, str]]:
    """Return the studies in `studies/` by hash, and the errors of unreadable files by name."""
    studies: dict[str, StudyFile] = {}
    errors: dict[str, str] = {}
    for path in sorted((home.folder / "studies").glob("*.toml"))[:MAX_STUDIES]:
        study = _study_at(path)
        if isinstance(study, StudyFile):
            studies[study.sha256] = study
        elif study:
            errors[path.name] = study
    return studies, errors


def parse_study(text: str, site: str) -> StudyFile:
    """Return a study that somebody sent. Raises `ConfigError` unless its signatures hold and this site is a party of it."""
    study = StudyFile.from_text(text)
    study.require_signatures()
    study.require_changes()
    if site not in study.names:
        raise ConfigError("this site is not a party of that study")
    return study


def store_study(home: SiteFolder, study: StudyFile) -> None:
    """Add a study to the inbox. Raises `ConfigError` if it is full. Takes seconds for a long one: run it in a thread."""
    folder = make_private_folder(home.folder / "studies")
    path = folder / f"{study.sha256}.toml"
    if not path.exists() and len(list(folder.glob("*.toml"))) >= MAX_STUDIES:
        raise ConfigError(f"the folder studies/ holds {MAX_STUDIES} files: remove some first")
    write_whole(path, study.to_toml().encode())
    _study_at(path)  # here, not when an event loop asks for the inbox


def _study_at(path: Path) -> StudyFile | str:
    """Return the study of a file, parsed once per change of the file, or its error."""
    try:
        changed = path.stat().st_mtime_ns
        if _parsed.get(path, (None,))[0] != changed:
            try:
                study = StudyFile.from_toml(path)
                study.require_signatures()
                study.require_changes()
                _parsed[path] = (changed, study)
            except BlindbayesError as error:
                _parsed[path] = (changed, str(error))
        return _parsed[path][1]
    except OSError:
        return ""


def known_studies(home: SiteFolder) -> dict[str, StudyFile]:
    """Return the studies that this site approved, refused, revoked or has in its inbox, by hash."""
    declined = (_study_at(path) for path in sorted((home.folder / "refused").glob("*.toml"))[:MAX_STUDIES])
    known = {study.sha256: study for study in declined if isinstance(study, StudyFile)}
    return known | inbox(home)[0] | {study.sha256: study for study in home.approvals.all()}


def find_study(home: SiteFolder, sha256: str) -> StudyFile | None:
    """Return a study that is approved or waiting here, or was refused or run here."""
    study = home.approvals.stored(sha256) or inbox(home)[0].get(sha256)
    if study is None and len(sha256) == 64 and set(sha256) <= set("0123456789abcdef"):
        runs = [entry["run"] for entry in home.audit.where("study", sha256, "joined")]
        places = [home.folder / "refused" / f"{sha256}.toml", *(home.folder / "releases" / run / "study.toml" for run in runs)]
        candidates = (_study_at(path) for path in places)
        study = next((each for each in candidates if isinstance(each, StudyFile) and each.sha256 == sha256), None)
    return study
