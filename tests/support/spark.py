"""A local Spark for the tests: one session in this process, on the loopback, with one core.

It comes from engines/spark.lock: 430 MB that nobody else needs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import programs
from support.engines import engine_python


@contextmanager
def spark_session(folder: Path) -> Iterator[Any]:
    """A session whose warehouse lies in a folder."""
    programs.require("java", "default-jre-headless")
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
