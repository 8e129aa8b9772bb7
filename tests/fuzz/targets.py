"""What can be fuzzed: a reader of untrusted bytes, with good inputs to begin from.

`files.py` has the readers of files, `frames.py` what peers send, `tables.py` tables, forms and uploads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

NAMES = (
    "codebook", "codebook on OMOP", "study", "site.toml", "card", "model", "ledger", "ledger with fitting hashes",
    "audit log", "share", "share with a fitting hash", "statement", "request", "roster", "people", "outcome", "journal",
    "backup", "sealed backup", "dictionary: redcap", "dictionary: frictionless", "dictionary: csvw", "dictionary: ddi",
    "dictionary: sdmx", "dictionary: sdmx json", "dictionary: spss", "release: claims.json", "release: common.json",
    "release: common.signatures.json", "release: cost.json", "release: leakage.json", "release: model.json",
    "release: run.json", "release: signatures.json", "release: statement.json", "release: study.toml",
    "release: checksums", "message", "envelope", "notice", "confirm", "relay address", "receipt", "receipts.json",
    "engine record", "frame at an agent", "invitation", "heads", "heads of our own", "table csv", "table parquet",
    "table xlsx", "table csv.gz", "upload of a workbook", "form", "form with files", "upload form",
    "request to the API",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One reader. `read` returns, or raises an error of the package: anything else is a finding."""

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], object]
    rounds: int = 60  # mutated inputs in the default suite


def every_target(folder: Path) -> Iterable[Target]:
    """Make all targets, with their sites, keys and releases, below `folder`."""
    from fuzz import files, frames, tables

    for number, module in enumerate((files, frames, tables)):
        place = folder / str(number)
        place.mkdir()
        yield from module.targets(place)
