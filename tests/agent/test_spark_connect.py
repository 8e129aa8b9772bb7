"""A real Spark Connect server on this machine: its table counted by URL, and a site of a joined study that reads from it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from blindbayes import NaiveBayes
from blindbayes.data import count_table
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines
from blindbayes.study.simulation.models import JoinedModel
from blindbayes.testing.loopback import Loopback, free_port, open_policy
from support import programs
from support.engines import Processes, engine_python, until
from support.joined_people import BOOK, HOLDS, people, tables

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"  # among the package's jars
COUNT = "import sys; from blindbayes.data import count_table; from blindbayes.codebook import Codebook; " + (
    "print(count_table(sys.argv[1], Codebook.from_toml(sys.argv[2]), extra_columns='ignore').words.tobytes().hex())"
)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The server's URL, and the environment in which its client is found."""
    programs.require("java", "default-jre-headless")
    packages = engine_python("spark").parents[1] / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    port = free_port()
    settings = {
        "spark.master": "local[1]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 1,
        "spark.sql.warehouse.dir": tmp_path / "warehouse",
    }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    server = Processes(tmp_path, {"SPARK_HOME": str(packages / "pyspark"), "PYSPARK_PYTHON": sys.executable})
    server.start("connect", [str(packages / "pyspark" / "bin" / "spark-submit"), "--class", SERVER, *options])

    def listens() -> bool:
        assert server.ended("connect") is None, server.log("connect")[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until("Spark Connect listens", listens, 120)
        yield f"sc://127.0.0.1:{port}", {"PYTHONPATH": str(packages)}
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_table_behind_spark_connect_is_counted_and_joined_like_a_file(
    tmp_path: Path, connect: tuple[str, dict[str, str]]
) -> None:
    url, environment = connect
    frame = people()
    (tmp_path / "book.toml").write_text(BOOK.to_toml())
    frame.to_parquet(tmp_path / "people.parquet", index=False)
    held = tables(frame)
    held["bank"].to_csv(tmp_path / "bank.csv", index=False)
    held["telecom"].to_parquet(tmp_path / "telecom.parquet", index=False)

    counted = subprocess.run(
        [sys.executable, "-c", COUNT, f"{url}#parquet.`{tmp_path}/people.parquet`", str(tmp_path / "book.toml")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    expected = count_table(pq.read_table(tmp_path / "people.parquet"), BOOK, extra_columns="ignore")
    assert counted.stdout.strip() == expected.words.tobytes().hex(), counted.stderr[-2000:]

    sources = {"bank": str(tmp_path / "bank.csv"), "telecom": f"{url}#parquet.`{tmp_path}/telecom.parquet`"}
    net = Loopback(tmp_path / "sites", sources, policy=open_policy(min_cell=0))
    try:
        for site in net.sites.values():
            site.start(environment=environment)
        study = net.make_study(
            BOOK,
            kind="join",
            key=("id",),
            duplicates="first",
            columns=Holdings(HOLDS, ("bank",)),
            options={"bounds": dict.fromkeys(HOLDS, MIN_BOUND), "queries": 20_000, "min_overlap": 10},
            deadlines=Deadlines(step=120, join=120, run=400),
        )
        net.approve(study)
        ended = net.run(study)
        assert {name: each["state"] for name, each in ended.items()} == dict.fromkeys(HOLDS, "done"), ended
        run_id = next(iter(ended.values()))["run"]
    finally:
        net.stop()
    shares = {name: site.home.folder / "shares" / f"{run_id}.share" for name, site in net.sites.items()}
    both = frame[20:45]
    pooled = NaiveBayes(BOOK).fit(both[list(BOOK.names)], both["class"])
    assert JoinedModel.load(shares).statistics().by_name()["sums"] == pooled.statistics_.by_name()["sums"]
