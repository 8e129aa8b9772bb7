"""Studies of an office whose sites are restored, and sites opened again."""

from __future__ import annotations

from typing import Any

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.study.file import Deadlines, Limits, StudyFile
from support.sites import BOOK, Office


def study_of(office: Office, **fields: Any) -> StudyFile:
    given = {"deadlines": Deadlines(step=20, join=20, run=35), "limits": Limits(quorum=3), **fields}
    study: StudyFile = office.net.make_study(BOOK, **given)
    return study


def reopen(office: Office, name: str) -> SiteFolder:
    site = office.net.sites[name]
    site.home = SiteFolder.open(site.home.folder)
    return site.home
