"""The driver of one process: the same jobs that site agents run, at sites that live in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from blindbayes.errors import ConfigError
from blindbayes.primitives.coins import Coins
from blindbayes.scheme.job import Job
from blindbayes.scheme.result import JointResult, Result
from blindbayes.scheme.sums import require_base
from blindbayes.simulation.joined import model_of
from blindbayes.simulation.site import OPEN, MemorySite
from blindbayes.site.policy import Policy, require_agreement
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.transport.memory import Fault, Outcome, local_runs, run_in_memory
from blindbayes.wire.transcript import Keep


def simulate(
    study: Study,
    sources: Mapping[str, Any],
    *,
    base: Result | None,
    removed: Mapping[str, Any] | None,
    ledgers: Mapping[str, str | os.PathLike[str]],
    policies: Mapping[str, Policy],
    coins: Coins,
    faults: Sequence[Fault],
    keep: Keep,
) -> Any:
    """See `Study.simulate`."""
    facts = study.scheme.facts
    if (base is not None or removed is not None or faults) and not facts.goes_on:
        raise ConfigError(f"{study.protocol}, over {study.partition}, takes no base, removed rows or faults")
    removed = removed or {}
    if removed and study.rows_per_person is not None:
        raise ConfigError("with rows_per_person no rows are taken back: which of a person's rows were counted is not kept")
    if unknown := sorted({*removed, *ledgers, *policies} - set(sources)):
        raise ConfigError(f"{unknown[0]!r} is no party of this run")
    own = getattr(study.scheme, "simulate", None)
    alone = None if own is None else own(study)  # a run that agents cannot have: the scheme names its own
    if alone is not None:
        if policies or (ledgers and not facts.between_sites):
            raise ConfigError(f"{study.protocol} takes no policies or ledgers here: nothing of it runs between sites")
        module, _, name = alone.partition(":")
        return getattr(import_module(module), name)(study, sources, coins=coins, ledgers=ledgers)
    sites = {
        name: MemorySite(name, source, removed.get(name), ledgers.get(name), policies.get(name, OPEN))
        for name, source in sources.items()
    }
    agreement = study.scheme.meet(study, sites)
    study.scheme.require_runnable(agreement)
    for policy in policies.values():
        require_agreement(policy, agreement)
    if base is not None:
        require_base(agreement, base)
    outcome = _run(agreement, sites, coins, faults, keep)
    if not facts.shares:
        return study.scheme.result(agreement, outcome, base=base)
    model = model_of(agreement, {name: site.kept() for name, site in sites.items()}, outcome.outputs)
    found: JointResult = study.scheme.result(agreement, outcome, model=model)
    return found


def _run(agreement: Agreement, sites: Mapping[str, MemorySite], coins: Coins, faults: Sequence[Fault], keep: Keep) -> Outcome:
    """Every site's job, to the end. Each reads and pays for itself before anything is sent."""
    seats, scheme = agreement.seats, agreement.study.scheme
    if len(set(seats)) != len(seats) or set(agreement.contributors) - set(seats) - set(sites):
        raise ConfigError(f"a party has a name that {scheme.name} keeps for itself; known roles: {', '.join(seats)}")
    run_id = coins.bytes(16).hex()
    coins = coins.derive(f"run {run_id}")  # two runs on the same coins never share noise or masks
    every = {**{seat: MemorySite(seat) for seat in seats if agreement.host(seat) not in sites}, **sites}
    jobs: dict[str, Job] = {name: scheme.job(agreement, site, run_id) for name, site in every.items()}
    for job in jobs.values():
        job.read()
    hosted = {seat: agreement.host(seat) for seat in seats}
    for seat, host in hosted.items():
        jobs[host].authorise_and_charge(seat)
    runs = local_runs(seats, study=agreement.sha256, run_id=run_id, coins=coins.derive("identities"))
    roles = {seat: jobs[host].role(seat, runs[seat], coins.derive(f"party {seat}")) for seat, host in hosted.items()}
    outcome = run_in_memory(roles, faults=faults, keep=keep)
    for name, job in jobs.items():
        own = {seat: outcome.outputs[seat] for seat, host in hosted.items() if host == name and seat in outcome.outputs}
        if own:
            job.keep(own)
    return outcome
