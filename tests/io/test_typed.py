"""Threads that decode to the same type for the first time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import blindbayes

# Each round takes classes that msgspec has never seen, since it describes each once.
RACE = """
import sys, threading
import msgspec
from blindbayes.io import typed
sys.setswitchinterval(1e-6)
for _ in range(200):
    inner = [msgspec.defstruct(f"Inner{at}", [(f"field{each}", int | None, None) for each in range(20)]) for at in range(10)]
    outer = msgspec.defstruct("Outer", [(f"part{at}", inner[at % 10] | None, None) for at in range(40)])
    value = {f"part{at}": {"field3": 3} for at in range(40)}
    packed, barrier, read = msgspec.msgpack.encode(value), threading.Barrier(4), []
    def use():
        barrier.wait()
        read.append(USE.part7.field3)
    threads = [threading.Thread(target=use) for _ in range(4)]
    for each in threads: each.start()
    for each in threads: each.join()
    assert read == [3] * 4
"""


@pytest.mark.parametrize(
    "use", ["typed.convert(value, outer)", "typed.decode(packed, outer)", "typed.decoder(outer).decode(packed)"]
)
def test_threads_may_use_a_type_for_the_first_time_together(use: str) -> None:
    ended = subprocess.run([sys.executable, "-c", RACE.replace("USE", use)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr  # -11: the process ended in msgspec


def test_nothing_else_asks_msgspec_to_decode() -> None:
    asks = re.compile(r"(msgspec|json|msgpack|toml|yaml)\.(convert|decode|Decoder)\(|from msgspec.* import .*(conv|[dD]ecode)")
    package = Path(blindbayes.__file__).parent
    files = {str(path.relative_to(package)): path.read_text("utf-8") for path in package.rglob("*.py")}
    assert [name for name, text in files.items() if asks.search(text)] == ["io/typed.py"]
