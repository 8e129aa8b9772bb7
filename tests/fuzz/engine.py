"""Feed mutated inputs to a target. Every input follows from target, seed and number, so that a finding can be repeated."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blindbayes.errors import BlindbayesError
from fuzz.targets import Target
from support.mutations import mutated

CORPUS = Path(__file__).with_name("corpus")
SECONDS = 8.0  # of CPU time for one input
MEGABYTES = 600  # that all inputs of a target may add to the peak
KEPT_BYTES, KEPT_INPUTS = 1500, 12  # of a target's corpus
_MAX_INPUT = 1 << 18  # mutations that double an input stop there
UNDER_WAY = mmap.mmap(-1, 256)  # the input that is tried, for a parent process: a library may end this one
OTHER_VALUES = (None, True, -1, 1e308, "", "1e999999999", [], ["x"], {}, {"x": 1}, [[1]], 2**70)


class FoundError(AssertionError):
    """An input that ended in another error, or took too long."""


class _TooLongError(BaseException):
    """CPU time is used up. No handler of the package catches it."""


@contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    """Raise after this much CPU time of the process: load of the machine does not count."""

    def stop(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def watched(work: Callable[[], int]) -> int:
    """Do the work in a process of its own; if that ends by a signal, say at which input, and return 1."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        ended = 2
        try:
            ended = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(ended)
    before = signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
    try:
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.signal(signal.SIGTERM, before)
    if ended < 0:
        print(f"{UNDER_WAY[:].decode().strip()}: the process ended by {signal.Signals(-ended).name}", flush=True)
    return 1 if ended < 0 else ended


def folder_of(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)


def corpus(target: Target) -> list[bytes]:
    """The kept inputs of a target, oldest name first."""
    folder = CORPUS / folder_of(target.name)
    return [path.read_bytes() for path in sorted(folder.glob("*"))]


@dataclass
class Fuzzer:
    """One target, the inputs that it mutates, and what came out."""

    target: Target
    seed: int = 1
    inputs: int = 0
    refused: int = 0
    cpu_seconds: float = 0.0
    grown: float = 0.0  # of the peak, in MB, while this target ran
    slowest: float = 0.0
    ends: set[str] = field(default_factory=set)  # where inputs were refused: functions, innermost last
    fresh: list[bytes] = field(default_factory=list)  # inputs that came to an end of their own

    def __post_init__(self) -> None:
        self.pool = [*self.target.seeds, *corpus(self.target)]

    def run(self, rounds: int) -> None:
        """Try the next inputs. Raises `FoundError` with the input and how to repeat it."""
        before = peak_megabytes()
        for _ in range(rounds):
            raw = self.input(self.inputs)
            UNDER_WAY[:] = f"{self.target.name}, seed {self.seed}, input {self.inputs}".encode().ljust(len(UNDER_WAY))
            self.inputs += 1
            self.check(raw)
        self.grown += peak_megabytes() - before
        if self.grown > MEGABYTES:
            raise FoundError(f"{self.target.name}: {self.grown:.0f} MB after input {self.inputs} of seed {self.seed}")

    def input(self, number: int) -> bytes:
        """The input of that number. It depends on the seeds and the corpus, not on earlier inputs of this run."""
        rng = random.Random(f"{self.target.name} {self.seed} {number}")
        raw = rng.choice(self.pool)
        if number % 3 == 0 and (document := _another_value(raw, rng)) is not None:
            return document
        return mutated(raw, rng)[:_MAX_INPUT]

    def check(self, raw: bytes) -> None:
        start = cpu_seconds()
        try:
            with _cpu_limit(SECONDS):
                self.target.read(raw)
            end = ""
        except BlindbayesError as error:
            self.refused += 1
            end = _end(error)
        except _TooLongError:
            raise FoundError(self._told(raw, f"took more than {SECONDS:g} s of CPU time")) from None
        except Exception as problem:
            raise FoundError(self._told(raw, f"{type(problem).__name__}: {problem}")) from problem
        taken = cpu_seconds() - start
        self.cpu_seconds += taken
        self.slowest = max(self.slowest, taken)
        if end not in self.ends:
            self.ends.add(end)
            self.fresh.append(raw)

    def _told(self, raw: bytes, what: str) -> str:
        return f"{self.target.name}, seed {self.seed}, input {self.inputs - 1}: {what}: {raw[:400]!r}"

    def keep(self) -> int:
        """Write the inputs with ends of their own to the corpus, the shortest; return how many."""
        folder = CORPUS / folder_of(self.target.name)
        present = {each.read_bytes() for each in folder.glob("*")} if folder.exists() else set()
        chosen = [raw for raw in sorted(self.fresh, key=len) if 0 < len(raw) <= KEPT_BYTES and not _names_a_path(raw)]
        chosen = [raw for raw in chosen if raw not in present and raw not in self.target.seeds]
        chosen = chosen[: max(0, KEPT_INPUTS - len(present))]
        if chosen:
            folder.mkdir(parents=True, exist_ok=True)
        for raw in chosen:
            (folder / hashlib.sha256(raw).hexdigest()[:16]).write_bytes(raw)
        return len(chosen)


def minimised(target: Target, raw: bytes, seconds: float = 20.0) -> bytes:
    """A shorter input on which the target fails in the same way."""

    def failure(candidate: bytes) -> str:
        try:
            with _cpu_limit(SECONDS):
                target.read(candidate)
        except BlindbayesError:
            return ""
        except _TooLongError:
            return "too long"
        except Exception as problem:
            return type(problem).__name__
        return ""

    wanted, until, size = failure(raw), time.process_time() + seconds, max(1, len(raw) // 2)
    while wanted and time.process_time() < until:
        shorter = (raw[:at] + raw[at + size :] for at in range(0, len(raw), size))
        better = next((each for each in shorter if time.process_time() < until and failure(each) == wanted), None)
        if better is not None:
            raw = better
        elif size == 1:
            break
        else:
            size //= 2
    return raw


def cpu_seconds() -> float:
    """CPU time of this process and of the ended ones that it started: some readers let a process of their own read."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _end(error: BaseException) -> str:
    """Where an error came from: the functions of the package, without lines, which move."""
    frames, names = error.__traceback__, []
    while frames is not None:
        code = frames.tb_frame.f_code
        if "/blindbayes/" in code.co_filename:
            names.append(code.co_qualname)
        frames = frames.tb_next
    return " ".join((type(error).__name__, *names[-4:]))


def _names_a_path(raw: bytes) -> bool:
    return any(mark in raw for mark in (b"/tmp", b"/dev/", b"/work", b"/root", b"/home"))


def _another_value(raw: bytes, rng: random.Random) -> bytes | None:
    """A well-formed JSON document in which one value is not what it should be: what random bytes seldom are."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    places: list[tuple[Any, Any]] = []
    _collect(document, places)
    if not places:
        return None
    inner, name = rng.choice(places)
    inner[name] = rng.choice(OTHER_VALUES)
    return json.dumps(document).encode()


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    names = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for name in names:
        places.append((value, name))
        _collect(value[name], places)
