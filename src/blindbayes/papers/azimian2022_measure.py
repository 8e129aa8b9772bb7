"""One bar of Azimian et al.'s figures: one scheme on one dataset at one key size, in a process of its own."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from blindbayes.errors import ConfigError
from blindbayes.papers.azimian2022_schemes import MultipleSources, PrintedChain, Records, Unpacked
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.paillier import generate_keypair
from blindbayes.protocol.chain_sum import BUILDER, PROTOCOL, roles
from blindbayes.protocol.registry import Setting, simulate_roles
from blindbayes.runtime.memory import local_runs, run_in_memory
from blindbayes.runtime.transcript import Keep

DATASETS = ("pima", "dermatology", "iris")
KEY_SIZES = (2048, 256)
SCHEMES = {
    "printed": "Azimian et al., as printed",
    "chain_sum": "chain_sum (ours)",
    "unpacked": "unpacked: one ciphertext per value and label",
    "unpacked_record": "unpacked: the record's string and its label",
    "unpacked_present": "unpacked: only the ones (not private)",
    "multiple_sources": "Li et al., as the paper describes it",
}
_MB = 2**20


@dataclass(frozen=True, slots=True)
class Measurement:
    """One bar of the figures."""

    dataset: str
    key_bits: int
    scheme: str
    contributors: int
    timed: int  # contributors that really ran
    encryptions: int  # per contributor
    setup_seconds: float  # keys
    contributor_ms: float  # mean, everything a contributor causes except what the builder does once
    builder_seconds: float
    total_seconds: float
    peak_mb: float  # of the process
    growth_mb: float  # over what the process had before the scheme ran

    @property
    def scaled(self) -> bool:
        """Whether the totals were scaled up from fewer contributors."""
        return self.timed < self.contributors


def measure(dataset: str, records: Records, scheme: str, key_bits: int, timed: int) -> Measurement:
    """Run one scheme in this process. CPU time; peak memory as the system counts it."""
    before = _memory("VmRSS")
    coins = Coins.system()
    count = len(records.owners)
    if scheme == "chain_sum":
        encryptions, contributors, builder = _run_ours(records, key_bits, coins)
        setup, timed = 0.0, count  # its keys are made in the run
    else:
        begun = time.process_time()
        private = generate_keypair(key_bits, coins, toy_keys=key_bits < 2048)
        setup = time.process_time() - begun
        timed = min(timed, count)
        kinds: dict[str, Callable[[], Any]] = {
            "printed": lambda: PrintedChain(records, private, coins),
            "unpacked": lambda: Unpacked(records, private, coins),
            "unpacked_record": lambda: Unpacked(records, private, coins, "record"),
            "unpacked_present": lambda: Unpacked(records, private, coins, "present"),
            "multiple_sources": lambda: MultipleSources(records, private, coins),
        }
        run = kinds[scheme]()
        encryptions = run.encryptions
        begun = time.process_time()
        totals = run.model(timed)
        spent = time.process_time() - begun
        if timed == count and totals != records.totals():
            raise ConfigError("a scheme gave a wrong count")
        builder = _decryption_seconds(records, scheme, run)
        contributors = max(spent - builder, 0.0) * count / timed
    peak = _memory("VmHWM")
    growth = peak - before
    if scheme == "multiple_sources":  # it stores every source: scale what was stored
        growth *= count / timed
        peak = before + growth
    return Measurement(
        dataset,
        key_bits,
        scheme,
        count,
        timed,
        encryptions,
        setup,
        1e3 * contributors / count,
        builder,
        setup + contributors + builder,
        peak / _MB,
        growth / _MB,
    )


def _run_ours(records: Records, key_bits: int, coins: Coins) -> tuple[int, float, float]:
    """chain_sum through its roles, codec and driver: chunks, contributors' and builder's seconds."""
    names = tuple(f"contributor {index}" for index in range(len(records.owners)))
    length = records.label_count * (1 + records.value_count)
    options = {"key_bits": key_bits, "toy_keys": key_bits < 2048, "bounds": [[0, records.size, length]]}
    setting = Setting(names, length, options=options)
    runs = local_runs(PROTOCOL.roster(setting), coins=coins)
    vectors = {name: np.array(records.vector(index), dtype=np.uint64) for index, name in enumerate(names)}
    begun = time.process_time()
    outcome = run_in_memory(simulate_roles(PROTOCOL, runs, setting, vectors, coins), keep=Keep.COUNTS)
    spent = time.process_time() - begun
    if outcome.outputs[BUILDER].words.tolist() != records.totals():
        raise ConfigError("a scheme gave a wrong count")
    builder = outcome.cost.parties[BUILDER].seconds  # its key, its table, the randomisers it deals, and the opening
    return roles.read_options(setting).packing.chunks, spent - builder, builder


def _decryption_seconds(records: Records, scheme: str, run: Any) -> float:
    """What the builder's decryptions cost: not scaled with the contributors."""
    counts = records.label_count * (1 + records.value_count)
    number = run.encryptions if scheme == "printed" else counts
    c = run.private.public.encrypt(1, run.coins)
    begun = time.process_time()
    run.private.decrypt_many([c] * 20)
    return number * (time.process_time() - begun) / 20


def _memory(what: str) -> int:
    """Bytes that the system counts for this process; VmHWM is the peak. Zero where there is no /proc."""
    try:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(what + ":")), 0)


def _main() -> None:
    """The child process: a task on standard input, a measurement on standard output."""
    task = json.loads(sys.stdin.read())
    records = Records.one_each(task["values"], task["labels"], task["value_count"], task["label_count"])
    made = measure(task["dataset"], records, task["scheme"], task["key_bits"], task["timed"])
    sys.stdout.write(json.dumps(asdict(made)))


def measure_apart(dataset: str, records: Records, scheme: str, key_bits: int, timed: int) -> Measurement:
    """`measure` in a process of its own."""
    task = {
        "dataset": dataset,
        "scheme": scheme,
        "key_bits": key_bits,
        "timed": timed,
        "values": records.values,
        "labels": records.labels,
        "value_count": records.value_count,
        "label_count": records.label_count,
    }
    command = [sys.executable, "-c", "from blindbayes.papers.azimian2022_measure import _main; _main()"]
    done = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, check=True)  # noqa: S603
    return Measurement(**json.loads(done.stdout))


def timed_contributors(scheme: str, records: Records, key_bits: int, quick: bool) -> int:
    """How many contributors to run, so that each bar takes seconds: a budget of encryptions."""
    budget = (150 if quick else 1500) if key_bits >= 2048 else (2000 if quick else 60_000)
    cells = records.label_count * (1 + records.value_count)
    each = {"printed": 30, "unpacked": cells, "multiple_sources": 2 * cells, "unpacked_record": records.value_count}.get(
        scheme, 20
    )
    return max(2 if scheme != "unpacked_present" else 20, budget // each)
