"""R, with the client of this repository installed in a library of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from support import programs

CLIENT = Path(__file__).parents[2] / "clients" / "r"
LIBRARIES = ("jsonlite", "httr2", "testthat")
Run = Callable[..., str]


def find_rscript() -> str:
    """Rscript with the libraries of the client, which Debian's packages bring."""
    asked = f"quit(status = !all(vapply(c({', '.join(map(repr, LIBRARIES))}), requireNamespace, TRUE, quietly = TRUE)))"

    def look() -> str | None:
        path = shutil.which("Rscript")
        return path if path is not None and subprocess.run([path, "-e", asked], check=False).returncode == 0 else None

    packages = [f"r-cran-{library}" for library in LIBRARIES]
    program = programs.find(look, *packages)
    if program is None:
        programs.refuse(f"R with {', '.join(LIBRARIES)} is not installed: apt-get install {' '.join(packages)}")
        raise AssertionError
    return program


def install_client(rscript: str, place: Path) -> Run:
    """Install the client; return a function that runs R code in a folder and returns what it prints."""
    copied, library = shutil.copytree(CLIENT, place / "blindbayes"), place / "library"
    library.mkdir()
    line = [str(Path(rscript).with_name("R")), "CMD", "INSTALL", "--no-test-load", f"--library={library}", str(copied)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr

    def run(code: str, folder: Path, **environment: str) -> str:
        known = {**os.environ, "R_LIBS": str(library), **environment}
        done = subprocess.run([rscript, "-e", code], cwd=folder, env=known, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
