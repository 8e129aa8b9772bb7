"""One PostgreSQL server, and one Spark, for the tests on data sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support import programs
from support.postgres import Unavailable, postgres_server
from support.spark import spark_session


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    pytest.importorskip("psycopg", reason="the postgres extra is not installed")
    try:
        with postgres_server() as url:
            yield url
    except Unavailable as reason:
        programs.refuse(str(reason))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session
