"""What a run may go on from: the statistics that this site put into earlier runs, and the totals that it learned.

A run with a base adds to an earlier result: its id begins with the name of that run, so that all sites know it. A site's vector
is then what changed since that run: its statistics now less those that it put in, whichever rows came or went. Both files are
sealed with the site's own key and never leave its folder.
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
from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError
from blindbayes.foreign import read_json_table
from blindbayes.primitives.aead import seal, unseal
from blindbayes.primitives.prg import derive_key
from blindbayes.scheme.result import Earlier
from blindbayes.site.runs import require_run_id
from blindbayes.statistics import Layout, Statistics
from blindbayes.storage.files import make_private_folder, read_private, write_whole

NAME = 32  # digits of a run's own name; before it stands its base's


def name_of(run_id: str) -> str:
    """A run's own name: the last digits of its id."""
    return require_run_id(run_id)[-NAME:]


def base_of(run_id: str) -> str | None:
    """The name of the run that this one goes on from, if it does."""
    return run_id[:NAME] if len(run_id) == 2 * NAME else None


@dataclass(frozen=True)
class KeptTotal:
    """See `scheme.result.Earlier`: a total that this site learned, with all that it adds up."""

    statistics: Statistics
    total: npt.NDArray[Any] | None
    shares: int
    runs: int
    spent: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bases:
    """The folder `bases/`: `<name>.counted` and `<name>.total`."""

    folder: Path

    def keep_counted(self, key: bytes, run_id: str, statistics: Statistics) -> None:
        """What this site puts into a run, before anything of it leaves."""
        fields = {"codebook": statistics.codebook.sha256, "words": [int(word) for word in statistics.words]}
        self._write(key, f"{name_of(run_id)}.counted", fields)

    def counted(self, key: bytes, name: str, codebook: Codebook) -> Statistics:
        """What this site put into the run of that name."""
        fields = self._read(key, f"{name}.counted")
        if fields is None or fields["codebook"] != codebook.sha256:
            raise ConfigError(
                "what this site put into the run that this one goes on from is not kept here; run it without a base"
            )
        return _statistics(codebook, fields["words"])

    def keep_total(self, key: bytes, run_id: str, found: Earlier) -> None:
        """What this site learned of a run, added to all before."""
        total = None if found.total is None else [int(value) for value in found.total]
        fields = {"codebook": found.statistics.codebook.sha256, "total": total, "shares": found.shares, "runs": found.runs}
        words = [int(word) for word in found.statistics.words]
        self._write(key, f"{name_of(run_id)}.total", {**fields, "words": words, "spent": list(found.spent)})

    def total(self, key: bytes, name: str, codebook: Codebook) -> KeptTotal | None:
        """What this site learned of the run of that name, if it did."""
        fields = self._read(key, f"{name}.total")
        if fields is None or fields["codebook"] != codebook.sha256:
            return None
        total = None if fields["total"] is None else np.array(fields["total"], dtype=np.int64)
        spent = (float(fields["spent"][0]), float(fields["spent"][1]))
        return KeptTotal(_statistics(codebook, fields["words"]), total, fields["shares"], fields["runs"], spent)

    def has_total(self, name: str) -> bool:
        """Whether this site learned the total of the run of that name."""
        return (self.folder / f"{name}.total").exists()

    def _write(self, key: bytes, name: str, fields: dict[str, Any]) -> None:
        sealed = seal(derive_key(key, "bases", name.encode()), json.dumps(fields).encode(), associated=name.encode())
        write_whole(make_private_folder(self.folder) / name, sealed)

    def _read(self, key: bytes, name: str) -> dict[str, Any] | None:
        if not (self.folder / name).exists():
            return None
        try:
            raw = read_private(self.folder / name)
            plain = unseal(derive_key(key, "bases", name.encode()), raw, associated=name.encode())
        except IntegrityError:
            raise LocalProtocolError("a file in the site's folder bases/ is damaged, or not this site's") from None
        return read_json_table(plain, "a base", most_bytes=1 << 30)


def _statistics(codebook: Codebook, words: Sequence[int]) -> Statistics:
    return Statistics.from_words(Layout(codebook), np.array(words, dtype=np.uint64))


def most_moved(since: Sequence[int | None]) -> int:
    """The most of these releases that one record can move, if it comes once and goes once.

    Release i tells how this site's statistics changed since release `since[i]`, or all of them (None). A record that is there
    from release a up to, not including, release b moves release i if it is there at i or at since[i], not at both. So a line
    of changes costs it two, however long; each release that no later one goes on from costs one more.
    """
    count = len(since)
    return max(
        (
            sum((a <= i < b) != (at is not None and a <= at < b) for i, at in enumerate(since))
            for a in range(count)
            for b in range(a + 1, count + 1)
        ),
        default=0,
    )
