"""Incremental runs: the statistics that this site put into earlier runs, and the totals that it learned.

A run with a base adds to an earlier result. Its id begins with the name of that run, so that all sites know it. A site's vector
is then its statistics now less those that it put into that run. Both files are encrypted with the site's own key, never leave
its folder and are never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.crypto.aead import seal_fresh, unseal_fresh
from blindbayes.crypto.prg import derive_key
from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError
from blindbayes.io.files import make_private_folder, read_private, write_whole
from blindbayes.io.untrusted import read_json_table
from blindbayes.statistics import Layout, Statistics
from blindbayes.study.tasks.result import PreviousTotal


@dataclass(frozen=True)
class KeptTotal:
    """A `PreviousTotal`: a total that this site learned."""

    statistics: Statistics
    total: npt.NDArray[Any] | None
    shares: int
    runs: int
    spent: tuple[float, float]


@dataclass(frozen=True, slots=True)
class IncrementStore:
    """The folder `increments/`: `<study>.<run>.counted` and `<study>.<run>.total`."""

    folder: Path

    def keep_counted(self, key: bytes, study: str, run_id: str, statistics: Statistics) -> None:
        """Store what this site puts into a run, before anything of it leaves."""
        fields = {"codebook": statistics.codebook.sha256, "words": [int(word) for word in statistics.words]}
        self._write(key, f"{study}.{run_id}.counted", fields)

    def counted(self, key: bytes, study: str, run_id: str, codebook: Codebook) -> Statistics:
        """Return what this site put into a run."""
        fields = self._read(key, f"{study}.{run_id}.counted")
        if fields is None or fields["codebook"] != codebook.sha256:
            raise ConfigError(
                "what this site put into the run that this one goes on from is not kept here; run it "
                "without a base, which begins a new line"
            )
        return _statistics(codebook, fields["words"])

    def keep_total(self, key: bytes, study: str, run_id: str, result: PreviousTotal) -> None:
        """Store the total that this site learned in a run."""
        if result.statistics is None:
            raise LocalProtocolError("a total without statistics cannot be added to")
        total = None if result.total is None else [int(value) for value in result.total]
        fields = {"codebook": result.statistics.codebook.sha256, "total": total, "shares": result.shares, "runs": result.runs}
        words = [int(word) for word in result.statistics.words]
        self._write(key, f"{study}.{run_id}.total", {**fields, "words": words, "spent": list(result.spent)})

    def total(self, key: bytes, study: str, run_id: str, codebook: Codebook) -> KeptTotal | None:
        """Return the total that this site learned in a run, or None."""
        fields = self._read(key, f"{study}.{run_id}.total")
        if fields is None or fields["codebook"] != codebook.sha256:
            return None
        total = None if fields["total"] is None else np.array(fields["total"], dtype=np.int64)
        spent = (float(fields["spent"][0]), float(fields["spent"][1]))
        return KeptTotal(_statistics(codebook, fields["words"]), total, fields["shares"], fields["runs"], spent)

    def has_total(self, study: str, run_id: str) -> bool:
        return (self.folder / f"{study}.{run_id}.total").exists()

    def _write(self, key: bytes, name: str, fields: dict[str, Any]) -> None:
        known = self._read(key, name)
        if known is None:
            sealed = seal_fresh(
                derive_key(key, "increments", name.encode()), json.dumps(fields).encode(), associated=name.encode()
            )
            write_whole(make_private_folder(self.folder) / name, sealed, replace=False)
        elif json.dumps(known, sort_keys=True) != json.dumps(fields, sort_keys=True):  # a resumed run stores the same
            raise LocalProtocolError("what a run put in or revealed is stored already, and differs: it stays")

    def _read(self, key: bytes, name: str) -> dict[str, Any] | None:
        if not (self.folder / name).exists():
            return None
        try:
            raw = read_private(self.folder / name)
            plain = unseal_fresh(derive_key(key, "increments", name.encode()), raw, associated=name.encode())
        except IntegrityError:
            raise LocalProtocolError("a file in the site's folder increments/ is damaged, or not this site's") from None
        return read_json_table(plain, "a base", max_bytes=1 << 30)


def _statistics(codebook: Codebook, words: Sequence[int]) -> Statistics:
    return Statistics.from_words(Layout(codebook), np.array(words, dtype=np.uint64))
