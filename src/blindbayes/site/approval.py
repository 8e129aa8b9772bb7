"""What people approve: every setting of a study that matters, in words, for every screen that asks for a yes."""

from __future__ import annotations

from blindbayes.protocol import registry
from blindbayes.study.file import NOISY, StudyFile


def learners_of(study: StudyFile) -> tuple[str, ...]:
    """The parties that learn the result of a run: those whose roles open it, and over columns all, who keep a share each."""
    if study.protocol == NOISY:
        return (study.hosts["miner"],)
    if study.partition == "columns":
        return study.names
    seats = registry.load(study.protocol).learners(study.setting)
    found = {study.host(seat) for seat in seats}
    return tuple(name for name in study.names if name in found)
