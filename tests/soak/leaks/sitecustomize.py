"""Planted in agents by `python tests/soak --plant KIND`: every run that ends leaks something."""

import os
import tempfile
import threading
import time
from pathlib import Path

KIND = os.environ.get("BLINDBAYES_LEAK", "")
_HELD: list[object] = []


def _leak() -> None:
    if KIND == "memory":
        _HELD.append(bytearray(os.urandom(4096)) * 512)
    elif KIND == "handles":
        _HELD.append(os.open(os.devnull, os.O_RDONLY))
    elif KIND == "threads":
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    elif KIND == "files":
        os.close(tempfile.mkstemp(dir=_FOLDER[0])[0])


_FOLDER: list[str] = []

if KIND:
    import sys

    from blindbayes.agent.runs import run

    _FOLDER.append(sys.argv[-1] if Path(sys.argv[-1]).is_dir() else sys.orig_argv[-1])
    _enter = run.AgentRun.enter

    def enter(self: run.AgentRun, phase: run.RunState) -> None:
        if phase.is_final:
            _leak()
        _enter(self, phase)

    run.AgentRun.enter = enter  # type: ignore[method-assign]
