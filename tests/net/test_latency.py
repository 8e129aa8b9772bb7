"""A courier that takes seconds for a message is refused to whatever needs milliseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.agent.serve import make_courier
from blindbayes.errors import ConfigError
from blindbayes.net.courier import Latency, require_latency
from blindbayes.net.identity import Identity
from blindbayes.protocols import registry
from blindbayes.study.file import Deadlines
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.tasks.task import StudyTask
from blindbayes.study.tasks.traits import Support
from support.hub import MemoryHub
from support.sites import BOOK, Office, bounded, paper_policy

NAMES = ("north", "south", "west")
PATIENT = Deadlines(step=60, join=60, run=120)


@pytest.mark.parametrize(
    ("protocol", "deadlines", "why"),
    [
        ("ring_sum", PATIENT, "too many messages"),
        pytest.param("chain_sum", PATIENT, "too many messages", marks=pytest.mark.slow),
        ("masked_sum", Deadlines(step=5, join=60, run=120), "deadlines.step"),
    ],
)
def test_an_agent_over_a_slow_courier_refuses(tmp_path: Path, protocol: str, deadlines: Deadlines, why: str) -> None:
    async def test() -> None:
        sent: list[bytes] = []
        hub = MemoryHub(lambda sender, to, frame: sent.append(frame) or [frame])  # type: ignore[func-returns-value]
        async with Office(tmp_path, NAMES, hub=hub, policy=paper_policy()) as office:
            study = office.net.make_study(BOOK, protocol=protocol, deadlines=deadlines)
            office.net.approve(study)
            office.agents["north"].router.courier.latency = Latency.SECONDS
            with pytest.raises(ConfigError, match=why):
                office.agents["north"].begin(study.sha256)
            assert office.agents["north"].runs == {}
            assert sent == []

    bounded(test)


def test_an_offer_that_comes_over_a_slow_courier_is_refused_and_kept_in_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES, policy=paper_policy()) as office:
            study = office.net.make_study(BOOK, protocol="ring_sum", deadlines=Deadlines(step=0.5, join=0.6, run=5))
            office.net.approve(study)
            office.agents["south"].router.courier.latency = Latency.SECONDS
            runs = await office.run(study)
            assert "south" not in runs
            assert runs["north"].state == "failed"
            refused = [entry for entry in office.net.sites["south"].home.audit.entries() if entry["event"] == "refused"]
            assert len(refused) == 1
            assert "ring_sum" in refused[0]["why"]

    bounded(test)


def test_a_patient_study_of_few_rounds_runs_over_a_slow_courier(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = office.net.make_study(BOOK, protocol="masked_sum", deadlines=PATIENT)
            office.net.approve(study)
            for agent in office.agents.values():
                agent.router.courier.latency = Latency.SECONDS
            assert {run.state for run in (await office.run(study)).values()} == {"done"}

    bounded(test)


def test_what_is_not_known_to_be_patient_needs_milliseconds() -> None:
    for protocol in ("class_sums", "joined_sums", "private_ratio"):
        patient = Support.SLOW_COURIER in tasks.task_class(protocol).supports
        require_latency(Latency.MILLISECONDS, protocol, 1.0, few_rounds=patient)
        with pytest.raises(ConfigError, match="grpc"):
            require_latency(Latency.SECONDS, protocol, 3600.0, few_rounds=patient)
    assert Support.SLOW_COURIER not in StudyTask.supports  # a protocol of tomorrow


@pytest.mark.parametrize("protocol", sorted(registry.known()))
def test_the_list_of_few_rounds_is_that_of_the_specs(protocol: str) -> None:
    """By the formulas of SPEC.md, which other tests compare with what is measured: the same rounds for 5 and for 50 parties."""

    def rounds(parties: int) -> int:
        spec = registry.spec(protocol)
        known: dict[str, int] = {"n": parties, "words": 8}
        for name, formula in spec.get("variables", {}).items():
            known[name] = eval(formula, {}, known)
        return int(eval(spec["rounds"], {}, known))

    assert (rounds(5) == rounds(50)) == (Support.SLOW_COURIER in tasks.task_class(protocol).supports)


def test_the_embedded_courier_offers_milliseconds(tmp_path: Path) -> None:
    office = Office(tmp_path, NAMES)
    home = office.net.sites["north"].home
    assert make_courier(home, Identity.load(home.folder)).latency is Latency.MILLISECONDS
