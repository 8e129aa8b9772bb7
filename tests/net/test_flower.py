"""A sum over a real Flower: a SuperLink and three SuperNodes on this machine, agents as processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from blindbayes.errors import BlindbayesError
from blindbayes.study.file import Deadlines
from net.test_flare import NAMES, SPLIT, all_up, model_of, run, sites, sockets_of
from support.engines import until
from support.flower import Flower

PATIENT = Deadlines(step=120, join=600, run=1200)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_sum_ends_over_a_real_flower_in_the_bytes_of_the_direct_courier(
    tmp_path: Path, short: Path, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--tenth"):
        pytest.skip("it takes minutes; `make test-slow` runs it")
    direct, carried = sites(tmp_path / "direct"), sites(tmp_path / "carried", latency="seconds", short=short)
    sockets = sockets_of(carried)
    with direct:
        study = direct.make_study(SPLIT.book, deadlines=PATIENT)
        direct.approve(study)
        expected = model_of(direct, run(direct, study)[0])
    with Flower(tmp_path / "flower", sockets) as flower, carried:
        flower.submit()
        until("all agents see each other through Flower", lambda: all_up(carried), 180)
        study = carried.make_study(SPLIT.book, deadlines=PATIENT)
        carried.approve(study)
        made, seconds = run(carried, study)
        print(f"over Flower: {seconds:.0f} s")
        assert model_of(carried, made) == expected

        # what needs milliseconds does not begin
        hasty = SPLIT.study(carried, deadlines=PATIENT)
        carried.approve(hasty)
        begun = time.monotonic()
        try:
            answer = carried.sites["north"].operator.call("POST", "/runs", {"study": hasty.sha256})
            said = str(answer)
        except BlindbayesError as error:
            said = str(error)
        assert "takes seconds for each" in said
        assert time.monotonic() - begun < 30

        logs = "".join(flower.processes.log(name) for name in ("superlink", *sockets))
        assert "Traceback" not in logs
    assert len(NAMES) == len(sockets)
