"""Sites of one process that hold columns of the same rows, and a study of theirs by noisy_histograms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, Party, Privacy, StudyFile
from blindbayes.testing.loopback import make_study_file
from support.column_sites import small
from support.sites import Office, paper_policy

BOOK = Codebook(
    "class",
    ("ill", "well"),
    (
        Numeric("age", 0, 120, 0.1, bins=6),
        Categorical("colour", ("red", "green", "blue")),
        Numeric("weight", 20, 200, 0.1, bins=6),
        Categorical("smokes", ("no", "yes")),
    ),
    max_rows=10_000,
)
HOLDS = {"hospital": ("age", "colour", "weight"), "insurer": ("smokes",), "office": ()}
FRAME = small(400)


def office_of(folder: Path, **options: Any) -> Office:
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, str | None] = {"office": None}
    for name in ("hospital", "insurer"):
        FRAME[[*HOLDS[name], "class"]].to_csv(folder / f"{name}.csv", index=False)
        rows[name] = str(folder / f"{name}.csv")
    options = {"policy": paper_policy(), **options}
    return Office(folder, tuple(rows), rows={name: rows[name] for name in HOLDS}, **options)


def study_of(office: Office, **fields: Any) -> StudyFile:
    given: dict[str, Any] = {"kind": "columns", "protocol": "noisy_histograms", "hosts": {"miner": "office"}}
    given |= {"columns": Holdings(HOLDS, ("hospital", "insurer")), "privacy": Privacy(epsilon=2.0)}
    given |= {"deadlines": Deadlines(step=10, join=10, run=60), "title": "noisy"}
    parties = tuple(Party(name, site.identity.card.identity.hex()) for name, site in office.net.sites.items())
    return make_study_file(parties=parties, codebook=BOOK, **{**given, **fields})
