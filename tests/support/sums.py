"""Run a rows protocol in memory, and evaluate the formulas of its SPEC."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blindbayes.primitives.coins import Coins
from blindbayes.protocol import registry
from blindbayes.transport.memory import Fault, Outcome, local_runs, run_in_memory
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
    seed: bytes = SEED,
    run_id: str = "run",
    faults: Sequence[Fault] = (),
    keep: Keep = Keep.HEADERS,
    check: bool = True,
) -> Outcome:
    found = registry.load(protocol)
    length = len(next(iter(vectors.values())))
    setting = registry.SumSetup(tuple(vectors), length, quorum, noisy=noisy, bound=bound, options=options or {})
    coins = Coins.seeded(seed)
    runs = local_runs(found.roster(setting), run_id=run_id, coins=coins.derive("identities"))
    roles = registry.simulate_roles(found, runs, setting, vectors, coins)
    return run_in_memory(roles, faults=faults, keep=keep, check=check)


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}


def formula(text: str, variables: Mapping[str, int]) -> int:
    """The value of an arithmetic expression in named integers."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return int(node.value)
        if isinstance(node, ast.Name):
            return variables[node.id]
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp):
            return _OPERATORS[type(node.op)](value(node.operand))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            return {"min": min, "max": max}[node.func.id](*map(value, node.args))
        if isinstance(node, ast.IfExp):
            return value(node.body) if value(node.test) else value(node.orelse)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = value(node.left), value(node.comparators[0])
            compare = {
                ast.Lt: operator.lt,
                ast.LtE: operator.le,
                ast.Gt: operator.gt,
                ast.GtE: operator.ge,
                ast.Eq: operator.eq,
            }
            return int(compare[type(node.ops[0])](left, right))
        raise ValueError(f"a SPEC formula may not hold {type(node).__name__}")

    return value(ast.parse(text, mode="eval").body)


def cost(spec: Mapping[str, Any], name: str, n: int, words: int, **given: int) -> int:
    """One cost by the SPEC's formula; `given` overrides its variables."""
    variables: dict[str, int] = {"n": n, "words": words}
    for variable, text in spec.get("variables", {}).items():
        variables[variable] = given[variable] if variable in given else formula(str(text), variables)
    return formula(str(spec[name]), variables)


def costs(spec: Mapping[str, Any], n: int, words: int, **given: int) -> tuple[int, int]:
    """Rounds and messages."""
    return cost(spec, "rounds", n, words, **given), cost(spec, "messages", n, words, **given)
