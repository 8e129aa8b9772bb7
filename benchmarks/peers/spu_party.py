"""One party of SPU's CHEETAH on the work of `spu_columns.py`, which starts it with the interpreter of SPU's own environment.

    python spu_party.py RANK PORT_0 PORT_1 < task.json > answer.json

Rank 0 holds the class of every row, rank 1 the columns. The work is cast in the form that suits SPU best: training is one
product of whole numbers, the class indicators (private to rank 0) by the columns (private to rank 1: indicators of values, x,
x^2), then logarithms and divisions on a few numbers; classification is one product of the instance's row (private) by the
shared coefficients, then argmax. This is less work than SPU's own GaussianNB does.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import spu.api as spu_api
import spu.libspu as libspu
import spu.utils.frontend as frontend

jax.config.update("jax_enable_x64", True)  # sums of squares pass 32 bits


class Party:
    """A runtime, its inputs and outputs by name."""

    def __init__(self, rank: int, ports: list[str]) -> None:
        config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.CHEETAH, field=libspu.FieldType.FM64)
        config.experimental_enable_colocated_optimization = True  # inputs stay with their owner
        desc = libspu.link.Desc()
        desc.recv_timeout_ms = 600_000
        for at, port in enumerate(ports):
            desc.add_party(f"party_{at}", f"127.0.0.1:{port}")
        self.rank = rank
        self.link = libspu.link.create_brpc(desc, rank)
        self.runtime = spu_api.Runtime(self.link, config)
        self.io = spu_api.Io(2, config)
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}

    def give(self, name: str, array: np.ndarray[Any, Any], owner: int) -> None:
        """A private input. Whoever is not its owner brings its shape only."""
        content = array if owner == self.rank else np.zeros_like(array)
        self.arrays[name] = np.zeros_like(array)
        shares = self.io.make_shares(content, libspu.Visibility.VIS_SECRET, owner)
        self.runtime.set_var(name, shares[self.rank])

    def compile(self, function: Any, inputs: list[str], outputs: list[str]) -> Any:
        """The program that both run; outputs stay shared under their names."""
        examples = [self.arrays[name] for name in inputs]
        secret = [libspu.Visibility.VIS_SECRET] * len(inputs)
        made, shapes = frontend.compile(frontend.Kind.JAX, function, examples, {}, inputs, secret, lambda _: list(outputs))
        flat = shapes if isinstance(shapes, (tuple, list)) else (shapes,)
        for name, shape in zip(outputs, flat, strict=True):
            self.arrays[name] = np.zeros(shape.shape, shape.dtype)
        return made

    def measured(self, program: Any) -> dict[str, float]:
        """CPU and wall seconds of one run."""
        self.link.barrier()
        started, begun = time.perf_counter(), cpu()
        self.runtime.run(program)
        return {"cpu": cpu() - begun, "wall": time.perf_counter() - started}


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def add_up(y: Any, x: Any) -> Any:
    """All class-conditional sums."""
    return jnp.matmul(y.T, x)


def coefficients(sums: Any, counts: Any, indicators: int, values: int, scale: float, rows: int) -> Any:
    """Per class: ln of the smoothed probabilities of the indicators, and A, B, C of each number. (columns + 1, classes)"""
    sums = sums.astype(jnp.float32)
    counted = sums[:, :indicators]
    logs = jnp.log((counted + 1) / rows) - jnp.log((counts + values) / rows)[:, None]
    first, second = sums[:, indicators::2] / scale, sums[:, indicators + 1 :: 2] / (scale * scale)
    mean = first / counts[:, None]
    variance = second / counts[:, None] - mean * mean
    constant = jnp.sum(-mean * mean / (2 * variance) - jnp.log(variance) / 2, axis=1) + jnp.log(counts / rows)
    numbers = jnp.stack([mean / variance, -1 / (2 * variance)], axis=2).reshape(sums.shape[0], -1)
    return jnp.concatenate([logs, numbers, constant[:, None]], axis=1).T


def share(own: Any, other: Any) -> Any:
    """A model in shares of both, belonging to neither."""
    return own + other


def classify(features: Any, weights: Any) -> Any:
    """The class of each instance."""
    return jnp.argmax(jnp.matmul(features, weights), axis=1)


def classify_as_written(one_hot: Any, z: Any, weights: Any, theta: Any, precision: Any) -> Any:
    """The class as SPU's own GaussianNB writes it: the squared distance to every shared mean, times the shared precision."""
    distance = (z[:, None, :] - theta[None]) ** 2
    return jnp.argmax(jnp.matmul(one_hot, weights) - 0.5 * jnp.sum(distance * precision[None], axis=2), axis=1)


def train(party: Party, task: dict[str, Any], rows: int) -> dict[str, float]:
    """Sums and model of so many rows."""
    source, classes = np.random.default_rng(1), task["classes"]
    label = source.integers(0, classes, rows)
    one_hot = label[:, None] == np.arange(classes)
    bits = source.integers(0, 2, (rows, task["indicators"]))
    drawn = np.rint(source.normal(0, task["size"] / 4, (rows, task["numbers"])))
    numbers = np.clip(drawn, -task["size"], task["size"]).astype(np.int64)
    pairs = np.stack([numbers, numbers * numbers], axis=2).reshape(rows, -1)
    party.give("y", one_hot.astype(np.int64), 0)
    party.give("x", np.concatenate([bits, pairs], axis=1), 1)
    party.give("counts", one_hot.sum(axis=0).astype(np.float32), 0)
    add = party.compile(add_up, ["y", "x"], ["sums"])
    model = partial(coefficients, indicators=task["indicators"], values=2, scale=task["size"] / 4, rows=rows)
    fit = party.compile(model, ["sums", "counts"], ["model"])
    first, second = party.measured(add), party.measured(fit)
    return {name: first[name] + second[name] for name in first} | {"sums_cpu": first["cpu"]}


def ask(party: Party, task: dict[str, Any], batch: int, nominal: int, gaussian: int) -> dict[str, float]:
    """The median of some classifications of a batch."""
    source, values = np.random.default_rng(2), task["values"]
    one_hot = source.integers(0, values, (batch, nominal, 1)) == np.arange(values)
    z = source.normal(0, 1, (batch, gaussian))
    pairs = np.stack([z, z * z], axis=2).reshape(batch, -1)
    row = np.concatenate([one_hot.reshape(batch, -1), pairs, np.ones((batch, 1))], axis=1).astype(np.float32)
    weights = source.normal(-1, 0.5, (row.shape[1], task["classes"])).astype(np.float32)
    party.give("features", row, 1)
    party.give("w0", weights, 0)
    party.give("w1", np.zeros_like(weights), 1)
    party.runtime.run(party.compile(share, ["w0", "w1"], ["weights"]))
    found = median(party, party.compile(classify, ["features", "weights"], ["class"]), task, batch)
    if gaussian:
        party.give("one_hot", np.concatenate([one_hot.reshape(batch, -1), np.ones((batch, 1))], axis=1).astype(np.float32), 1)
        party.give("z", z.astype(np.float32), 1)
        shapes = {"rest": (nominal * values + 1, task["classes"]), "theta": (task["classes"], gaussian)}
        for name, shape in {**shapes, "precision": shapes["theta"]}.items():
            for owner in (0, 1):
                party.give(f"{name}{owner}", np.full(shape, 0.25, np.float32), owner)
            party.runtime.run(party.compile(share, [f"{name}0", f"{name}1"], [name]))
        names = ["one_hot", "z", "rest", "theta", "precision"]
        written = median(party, party.compile(classify_as_written, names, ["class"]), task, batch)
        found |= {f"written_{name}": value for name, value in written.items()}
    return found


def median(party: Party, program: Any, task: dict[str, Any], batch: int) -> dict[str, float]:
    """The middle one of some runs, by wall time."""
    runs = [party.measured(program) for _ in range(task["repeat"] if batch < 1000 else 5)]
    return sorted(runs, key=lambda one: one["wall"])[len(runs) // 2]


def main() -> None:
    rank, ports = int(sys.argv[1]), sys.argv[2:4]
    task = json.load(sys.stdin)
    party = Party(rank, ports)
    found: dict[str, Any] = {"train": {rows: train(party, task, rows) for rows in task["rows"]}, "classify": []}
    for nominal, gaussian in task["kinds"]:
        found["classify"].append({batch: ask(party, task, batch, nominal, gaussian) for batch in task["batches"]})
    party.link.barrier()
    json.dump(found, sys.stdout)
    sys.stdout.flush()
    party.link.stop_link()


if __name__ == "__main__":
    main()
