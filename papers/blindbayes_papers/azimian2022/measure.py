"""One bar of Azimian et al.'s figures: one scheme on one dataset at one key size, in a process of its own."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError
from blindbayes.protocols.core import Done, Effect, Open, Role, Send, step
from blindbayes.protocols.memory import local_runs
from blindbayes.protocols.registry import SumSetup
from blindbayes.wire import Message, decode, encode
from blindbayes_papers.azimian2022.chain_sum import BUILDER, PROTOCOL, roles
from blindbayes_papers.azimian2022.schemes import (
    Cells,
    MultipleSources,
    PrintedChain,
    Records,
    Unpacked,
    first_contributors,
    textbook_encrypt,
)
from blindbayes_papers.primitives.paillier import PrivateKey, PublicKey, generate_keypair

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
REPEATS = 3  # the fastest of these counts; short ones are repeated more often
_MB = 2**20


@dataclass(frozen=True, slots=True)
class Measurement:
    """One bar of the figures."""

    dataset: str
    key_bits: int
    scheme: str
    contributors: int
    timed: int  # contributors that really ran; 0: single operations were timed and multiplied
    encryptions: int  # per contributor
    setup_seconds: float  # keys
    contributor_ms: float  # mean, everything a contributor causes except what the builder does once
    builder_seconds: float
    total_seconds: float
    peak_mb: float  # of the process
    growth_mb: float  # over what the process had before the scheme ran

    @property
    def scaled(self) -> bool:
        """Return whether the totals were scaled up from fewer contributors."""
        return self.timed < self.contributors


def measure(dataset: str, records: Records, scheme: str, key_bits: int, quick: bool) -> Measurement:
    """Run one scheme in this process. CPU time; peak memory as the system counts it.

    Textbook schemes: their operations are timed and multiplied, and their memory is that of a run with a cheap encryption.
    """
    coins = Coins.system()
    _warm_up(coins)
    before = _memory("VmRSS")
    count = len(records.owners)
    timed, stored, setup = count, 1.0, 0.0
    if scheme == "chain_sum":
        repeats = [run_one_by_one(records, key_bits, coins) for _ in range(1 if quick else REPEATS * 768 // count)]
        encryptions, contributors, builder = min(repeats, key=lambda one: one[1] + one[2])
    else:
        begun = time.process_time()
        private = generate_keypair(key_bits, coins, toy_keys=key_bits < 2048)
        setup = time.process_time() - begun
        cells = records.label_count * (1 + records.value_count)
        cost = operations(private, coins, quick)
        if scheme == "printed":
            timed = min(count, 3 if quick and key_bits >= 2048 else 40)
            some = PrintedChain(first_contributors(records, timed), private, coins)
            encryptions = PrintedChain(records, private, coins).encryptions
            begun = time.process_time()
            some.model()
            builder = encryptions * cost.decrypt
            contributors = (time.process_time() - begun - builder) * count / timed
            if PrintedChain(records, private, coins, encrypt=cheap_encrypt).model() != records.totals():
                raise ConfigError("a scheme gave a wrong count")
        else:
            timed = 0
            builder = cells * cost.decrypt
            if scheme == "multiple_sources":
                few = first_contributors(records, min(count, 10))
                stored = count / len(few.owners)
                sources = MultipleSources(few, private, coins)
                sources.add_up(cheap_encrypt)
                encryptions = sources.encryptions
            else:
                which: dict[str, Cells] = {"unpacked_record": "record", "unpacked_present": "present"}
                unpacked = Unpacked(records, private, coins, which.get(scheme, "all"))
                encryptions = unpacked.encryptions
                Unpacked(first_contributors(records, 5), private, coins, which.get(scheme, "all")).add_up(cheap_encrypt)
            contributors = count * encryptions * (cost.encrypt + cost.add)
    growth = (_memory("VmHWM") - before) * stored
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
        (before + growth) / _MB,
        growth / _MB,
    )


def _warm_up(coins: Coins) -> None:
    """Every code path once on a tiny case: what libraries load at first use is no memory of a scheme."""
    tiny = Records.one_each([[0], [1]], [0, 1], 2, 2)
    PrintedChain(tiny, generate_keypair(128, coins, toy_keys=True), coins).model()
    run_one_by_one(tiny, 128, coins)


@dataclass(frozen=True, slots=True)
class Operations:
    """CPU seconds of one textbook operation."""

    encrypt: float
    add: float
    decrypt: float


def operations(private: PrivateKey, coins: Coins, quick: bool) -> Operations:
    """The best of some batches, as for the other short measurements."""
    number = 20 if private.public.bits >= 2048 else 300
    best = [float("inf")] * 3
    for _ in range(1 if quick else 2 * REPEATS):
        times = [time.process_time()]
        made = [textbook_encrypt(private.public, at & 1, coins) for at in range(number)]
        times.append(time.process_time())
        running = made[0]
        for c in made:
            running = private.public.add(running, c)
        times.append(time.process_time())
        private.decrypt_many(made)
        times.append(time.process_time())
        best = [min(fastest, (end - start) / number) for fastest, start, end in zip(best, times, times[1:], strict=False)]
    return Operations(*best)


def cheap_encrypt(public: PublicKey, m: int, coins: Coins) -> Any:
    """For measurements of memory alone: a ciphertext of full size at no cost, and of no secrecy."""
    return public.add_plain(public.n_squared - 1 - public.n * 2, m + 2)  # (1 + (m+2) N) (-1 - 2N)


def run_one_by_one(records: Records, key_bits: int, coins: Coins) -> tuple[int, float, float]:
    """chain_sum through its roles and codec: chunks, contributors' seconds, builder's seconds.

    One contributor is in memory at a time, as in the simulation of the printed scheme: it is made once to announce its key, and
    again from the same coins when the chain comes to it, which is not counted twice. The seconds include the making of the
    builder's keys and tables.
    """
    names = tuple(f"contributor {index}" for index in range(len(records.owners)))
    length = records.label_count * (1 + records.value_count)
    options = {"key_bits": key_bits, "toy_keys": key_bits < 2048}
    setting = SumSetup(names, length, options=options, ranges=((0, records.size, length),))
    runs = local_runs(PROTOCOL.roster(setting), coins=coins)
    seeds = {name: coins.bytes(32) for name in names}
    clock = {BUILDER: 0.0, "contributors": 0.0}

    def step_of(who: str, role: Role[Any], message: Message | dict[str, Any] | None = None) -> Effect | Done:
        if isinstance(message, Message):
            message = decode(encode(message), type(message))
        begun = time.process_time()
        effect = step(role, message)
        clock[who] += time.process_time() - begun
        return effect

    def contributor(index: int) -> Role[Any]:
        name = names[index]
        vector = np.array(records.vector(index), dtype=np.uint64)
        return PROTOCOL.role(runs[name], setting, vector, Coins.seeded(seeds[name]))

    builder = PROTOCOL.role(runs[BUILDER], setting, None, coins)
    step_of(BUILDER, builder)
    announced = {name: _sent(step_of("contributors", contributor(index))).message for index, name in enumerate(names)}
    effect = step_of(BUILDER, builder, announced)
    link: Message | None = None
    while isinstance(effect, Send):  # the roster, then the randomisers, of the next of the chain
        role = contributor(names.index(effect.to))
        step(role)
        step_of("contributors", role)
        step_of("contributors", role, effect.message)
        after = step_of("contributors", role, _sent(step_of(BUILDER, builder)).message)
        link = _sent(after if isinstance(after, Send) else step_of("contributors", role, link)).message
        effect = step_of(BUILDER, builder)
    opened = step_of(BUILDER, builder, link)
    if not isinstance(opened, Open) or opened.value.tolist() != records.totals():
        raise ConfigError("a scheme gave a wrong count")
    return roles.read_options(setting).packing.chunks, clock["contributors"], clock[BUILDER]


def _sent(effect: Effect | Done) -> Send:
    if not isinstance(effect, Send):
        raise ConfigError("a role of the chain did not send")
    return effect


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
    made = measure(task["dataset"], records, task["scheme"], task["key_bits"], task["quick"])
    sys.stdout.write(json.dumps(asdict(made)))


def measure_apart(dataset: str, records: Records, scheme: str, key_bits: int, quick: bool) -> Measurement:
    """`measure` in a process of its own."""
    task = {
        "dataset": dataset,
        "scheme": scheme,
        "key_bits": key_bits,
        "quick": quick,
        "values": records.values,
        "labels": records.labels,
        "value_count": records.value_count,
        "label_count": records.label_count,
    }
    command = [sys.executable, "-c", "from blindbayes_papers.azimian2022.measure import _main; _main()"]
    done = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, check=True)  # noqa: S603
    return Measurement(**json.loads(done.stdout))
