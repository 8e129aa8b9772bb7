"""One PostgreSQL server for the tests on data sources."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.postgres import IN_CI, Unavailable, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    pytest.importorskip("psycopg", reason="the postgres extra is not installed")
    try:
        with postgres_server() as url:
            yield url
    except Unavailable as reason:
        if IN_CI:
            pytest.fail(f"under CI=true this must be there: {reason}")
        pytest.skip(str(reason))
