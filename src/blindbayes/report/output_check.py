"""`disclosure.json`: every output of a release with the checks made, in the terms of output checking.

The words are those of ACRO / SACRO (statbarn, risk appetite, status pass, review or fail, exception) and of the Five Safes;
`disclosure.schema.json` beside this module is the published schema. The file is the same at every site that learned the result,
so it is under the common signature. What depends on one site's policy is in that site's log.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes import __version__
from blindbayes.codebook import Numeric
from blindbayes.io.untrusted import read_json_table
from blindbayes.statistics import Statistics

DISCLOSURE = "disclosure.json"
FORMAT = "blindbayes.disclosure/1"
FREQUENCY = 10
"""The smallest safe frequency where the parties agreed on none: the usual risk appetite of research environments."""
DOMINANCE = (2, 0.9)
"""The NK rule: the largest 2 values make up at most 90% of a sum."""

Status: TypeAlias = Literal["pass", "review", "fail"]
_ORDER: tuple[Status, ...] = ("pass", "review", "fail")
_COUNTS = ("class_count", "count", "n")


@dataclass(frozen=True, slots=True)
class OutputRule:
    """One check of one output."""

    name: str  # floor, recomputation, dominance, differencing, budget, queries
    result: Status
    summary: str


@dataclass(frozen=True, slots=True)
class CheckedOutput:
    """One output: its kind, who learns it, the checks, and who granted an exception to one that does not pass."""

    name: str
    output_type: str  # table, model, classifier in shares, classes, evaluation, reports
    statbarn: str  # the group of statistics whose risks it has; empty: none fits
    to: tuple[str, ...]
    checks: tuple[OutputRule, ...]
    exception: str = ""  # why it was released all the same
    granted_by: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        return worst(check.result for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCheck:
    """The content of `disclosure.json`."""

    outputs: tuple[CheckedOutput, ...]
    risk_appetite: Mapping[str, int | float | bool | None]
    rules: Mapping[str, str]  # rules that every site checked before anything was computed, by name
    five_safes: Mapping[str, str]

    @property
    def status(self) -> Status:
        return worst(output.status for output in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """Return plain builtins, as the schema describes them."""
        outputs = [
            {
                "uid": f"output_{at}",
                "status": output.status,
                **{
                    name: value
                    for name, value in asdict(output).items()
                    if name not in ("exception", "granted_by", "to", "checks")
                },
                "to": list(output.to),
                "checks": [asdict(check) for check in output.checks],
                "exception": {"granted_by": list(output.granted_by), "reason": output.exception} if output.exception else None,
            }
            for at, output in enumerate(self.outputs)
        ]
        return {
            "format": FORMAT,
            "tool": {"name": "blindbayes", "version": __version__},
            "status": self.status,
            "risk_appetite": dict(self.risk_appetite),
            "outputs": outputs,
            "rules": [{"name": name, "sentence": sentence} for name, sentence in self.rules.items()],
            "five_safes": dict(self.five_safes),
        }

    @property
    def text(self) -> bytes:
        return (json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n").encode()


def worst(statuses: Iterable[Status]) -> Status:
    """Return the worst status; pass without one."""
    return max(statuses, key=_ORDER.index, default="pass")


def schema() -> dict[str, Any]:
    """Return the published JSON schema of `disclosure.json`."""
    text = (importlib.resources.files("blindbayes.report") / "disclosure.schema.json").read_text("utf-8")
    return read_json_table(text, "disclosure.schema.json")


def risk_appetite(floor: int, quorum: int | None, epsilon: float, delta: float) -> dict[str, int | float | bool | None]:
    """Return the thresholds against which outputs are checked."""
    return {
        "frequency": floor or FREQUENCY,
        "zeros_are_disclosive": False,
        "nk_n": DOMINANCE[0],
        "nk_k": DOMINANCE[1],
        "min_parties": quorum,
        "epsilon": epsilon or None,
        "delta": delta or None,
    }


# -- checks of exact statistics --------------------------------------------------------------------------------------------


def check_floor(statistics: Statistics) -> OutputRule:
    """Check that no cell counts fewer rows than the floor, but 0."""
    layout = statistics.layout
    counts = [statistics.vector[layout.slice(group)] for group in layout.groups if group.kind in _COUNTS]
    return check_counts(np.concatenate(counts))


def check_counts(counts: npt.NDArray[np.int64]) -> OutputRule:
    """Check that no count is 1 to `FREQUENCY` - 1."""
    if small := int(((counts > 0) & (counts < FREQUENCY)).sum()):
        return OutputRule("floor", "fail", f"{small} cells count 1 to {FREQUENCY - 1} rows: no min_cell was agreed")
    return OutputRule("floor", "pass", f"every cell is 0 or at least {FREQUENCY}")


def check_dominance(features: Iterable[tuple[Numeric, int, int]]) -> OutputRule | None:
    """Check the NK rule for sums of (feature, number of values, sum of codes) by the declared bounds; None without sums.

    Two values at most high - low above the lower bound each make up at most 90% of the sum of all distances from it: then they
    do whatever the values are. Otherwise the rule is left to a person.
    """
    number, share = DOMINANCE
    known = list(features)
    if not known:
        return None
    unclear = 0
    for feature, values, total in known:
        distance = total - values * feature.code_low
        unclear += values > 0 and number * (feature.code_high - feature.code_low) > share * distance
    if unclear:
        text = f"{unclear} sums are too small for the declared bounds to rule out that two values dominate them"
        return OutputRule("dominance", "review", text)
    return OutputRule("dominance", "pass", f"by the declared bounds no {number} values make up more than {share:.0%} of a sum")


def sums_of(statistics: Statistics) -> list[tuple[Numeric, int, int]]:
    """Return the sums of numeric features, class by class, as `check_dominance` takes them."""
    return [
        (feature, int(values), int(total))
        for name, totals in statistics.sums.items()
        if isinstance(feature := statistics.codebook.feature(name), Numeric)
        for values, total in zip(statistics.n[name], totals, strict=True)
    ]
