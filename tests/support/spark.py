"""A local Spark for the tests: one session in this process, on the loopback, with one core.

It comes from engines/spark.lock: 430 MB that nobody else needs.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.engines import engine_python

IN_CI = os.environ.get("CI", "").lower() == "true"


def _find_java() -> None:
    """Under CI=true it is installed once if it is absent."""
    if shutil.which("java") is None and IN_CI and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", "--no-install-recommends", "default-jre-headless"]):
            subprocess.run(["apt-get", *command], check=False, capture_output=True, timeout=240, env=environment)
    if shutil.which("java") is None:
        reason = "Spark needs Java 17 or later: apt-get install default-jre-headless"
        if IN_CI:
            pytest.fail(f"under CI=true this must be there: {reason}")
        pytest.skip(reason)


@contextmanager
def spark_session(folder: Path) -> Iterator[Any]:
    """A session whose warehouse lies in a folder."""
    _find_java()
    if importlib.util.find_spec("pyspark") is None:
        packages = engine_python("spark").parents[1] / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        sys.path.append(str(packages))  # behind our own
    from blindbayes.data.engines import spark_session as begin

    settings = {
        "spark.master": "local[1]",
        "spark.sql.warehouse.dir": str(folder),
        "spark.sql.shuffle.partitions": 1,
        "spark.default.parallelism": 1,
        "spark.sql.codegen.wholeStage": False,  # its compiling is most of a short query
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    session = begin("spark://local", settings)
    try:
        yield session
    finally:
        session.stop()
