"""Run a rows protocol in memory, and evaluate the formulas of its SPEC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.errors import BlindbayesError
from blindbayes.protocols import registry
from blindbayes.protocols.formula import value_of
from blindbayes.protocols.memory import Fault, Outcome, local_runs, run_in_memory
from blindbayes.wire.transcript import Keep

SEED = bytes(range(32))


def names(count: int) -> tuple[str, ...]:
    return tuple(f"site{index}" for index in range(count))


def random_vectors(parties: Sequence[str], length: int, seed: bytes = SEED) -> dict[str, np.ndarray]:
    coins = Coins.seeded(seed).derive("inputs")
    return {name: coins.words(length) for name in parties}


def pooled(vectors: Mapping[str, np.ndarray], included: Sequence[str]) -> np.ndarray:
    total = np.zeros(len(next(iter(vectors.values()))), np.uint64)
    for name in included:
        total += vectors[name]
    return total


def run_sum(
    protocol: str,
    vectors: Mapping[str, np.ndarray],
    *,
    quorum: int | None = None,
    noisy: bool = False,
    bound: int = 2**63 - 1,
    options: Mapping[str, Any] | None = None,
    corrupt: float = 0.1,
    seed: bytes = SEED,
    run_id: str = "run",
    faults: Sequence[Fault] = (),
    keep: Keep = Keep.HEADERS,
    check: bool = True,
) -> Outcome:
    found = registry.load(protocol)
    length = len(next(iter(vectors.values())))
    setting = registry.SumSetup(
        tuple(vectors), length, quorum, noisy=noisy, bound=bound, options=options or {}, corrupt=corrupt
    )
    coins = Coins.seeded(seed)
    runs = local_runs(found.roster(setting), run_id=run_id, coins=coins.derive("identities"))
    roles = registry.simulate_roles(found, runs, setting, vectors, coins)
    return run_in_memory(roles, faults=faults, keep=keep, check=check)


def error_of(outcome: Outcome) -> BlindbayesError | None:
    """What the run failed with, or of a run that ended well what its reader was told alone: a total that is no sum."""
    found = (getattr(output, "error", None) for output in outcome.outputs.values())
    return outcome.error or next((error for error in found if error is not None), None)


def formula(text: str, variables: Mapping[str, int]) -> int:
    """The value of an arithmetic expression in named integers."""
    return int(value_of(text, variables))


def cost(spec: Mapping[str, Any], name: str, n: int, words: int, **given: int) -> int:
    """One cost by the SPEC's formula; `given` overrides its variables."""
    variables: dict[str, int] = {"n": n, "words": words}
    for variable, text in spec.get("variables", {}).items():
        variables[variable] = given[variable] if variable in given else formula(str(text), variables)
    return formula(str(spec[name]), variables)


def costs(spec: Mapping[str, Any], n: int, words: int, **given: int) -> tuple[int, int]:
    """Rounds and messages."""
    return cost(spec, "rounds", n, words, **given), cost(spec, "messages", n, words, **given)
