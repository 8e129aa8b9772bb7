"""Jobs of all sites of a run in one process, each message really encoded and decoded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.signatures import SigningKey
from blindbayes.protocols.memory import Fault, Outcome, local_runs, run_in_memory
from blindbayes.study.tasks.job import Job
from blindbayes.wire.transcript import Keep


def run_jobs(
    jobs: Mapping[str, Job],
    hosts: Mapping[str, str],
    study: str,
    run_id: str,
    coins: Coins,
    *,
    faults: Sequence[Fault] = (),
    keep: Keep = Keep.HEADERS,
) -> Outcome:
    """Every site's job, to the end; `hosts` says which site fills which role. Each reads and pays before anything is sent."""
    coins = coins.derive(f"run {run_id}")  # two runs on the same coins never share noise or masks
    for job in jobs.values():
        job.read()
    for seat, host in hosts.items():
        jobs[host].authorise_and_charge(seat)
    keys = {seat: identity_of(study, seat) for seat in hosts}
    runs = local_runs(tuple(hosts), study=study, run_id=run_id, coins=coins.derive("identities"), keys=keys)
    roles = {seat: jobs[host].role(seat, runs[seat], coins.derive(f"party {seat}")) for seat, host in hosts.items()}
    outcome = run_in_memory(roles, faults=faults, keep=keep)
    outputs: dict[str, dict[str, Any]] = {}
    for seat, host in hosts.items():
        if seat in outcome.outputs:
            outputs.setdefault(host, {})[seat] = outcome.outputs[seat]
    for name, own in outputs.items():
        jobs[name].keep(own)
    return outcome


def identity_of(study: str, name: str) -> SigningKey:
    """The identity of a site in memory: the same in all runs of a study, so that what it signed in one can be shown after
    another. It is no secret: here nobody hides from anybody."""
    return SigningKey.generate(Coins.seeded(hashlib.sha256(f"site in memory\n{study}\n{name}".encode()).digest()))
