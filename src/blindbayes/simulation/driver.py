"""The driver of one process: the same jobs that site agents run, at sites that live in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.policy import Policy, require_allowed
from blindbayes.errors import ConfigError
from blindbayes.protocols.memory import Fault, Outcome
from blindbayes.simulation.joined import model_of
from blindbayes.simulation.run import run_jobs
from blindbayes.simulation.site import OPEN, MemorySite, key_of
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.study.tasks.job import Job
from blindbayes.study.tasks.result import JointResult, Result
from blindbayes.study.tasks.sums import require_base
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
    agreement: Agreement | None,
) -> Any:
    facts = study.scheme.facts
    if (base is not None or removed is not None or faults) and not facts.goes_on:
        raise ConfigError(f"{study.protocol}, over {study.partition}, takes no base, removed rows or faults")
    removed = removed or {}
    if removed and study.privacy.rows_per_person is not None:
        raise ConfigError("with rows_per_person no rows are taken back: which of a person's rows were counted is not kept")
    if unknown := sorted({*removed, *ledgers, *policies} - set(sources)):
        raise ConfigError(f"{unknown[0]!r} is no party of this run")
    if (policies or ledgers) and not facts.between_sites:
        raise ConfigError(f"{study.protocol} takes no policies or ledgers: nothing of it runs between sites")
    sites = {
        name: MemorySite(name, source, removed.get(name), ledgers.get(name), policies.get(name, OPEN), key=key_of(coins))
        for name, source in sources.items()
    }
    if agreement is None:
        agreement = study.scheme.meet(study, sites)
    elif set(agreement.contributors) - set(sites) or set(sites) - set(agreement.names):
        raise ConfigError(f"the study is between {', '.join(agreement.names)}: bring a table for each that contributes")
    study.scheme.require_runnable(agreement)
    for policy in policies.values():
        require_allowed(policy, study.protocol, agreement.study.scheme.exposure(agreement))
    if base is not None:
        if base.statistics is None:
            raise ConfigError("the earlier result holds probabilities without counts: nothing can be added to it")
        require_base(agreement, cast(Any, base))
    outcome = _run(agreement, sites, coins, faults, keep)
    if not facts.shares:
        return study.scheme.result(agreement, outcome, base=base)
    shares = {name: site.share_of("") for name, site in sites.items()}
    make = getattr(study.scheme, "model", model_of)
    found: JointResult = study.scheme.result(agreement, outcome, model=make(agreement, shares))
    return found


def _run(agreement: Agreement, sites: Mapping[str, MemorySite], coins: Coins, faults: Sequence[Fault], keep: Keep) -> Outcome:
    """Every site's job, and those of the roles that no site of this run hosts."""
    seats, scheme = agreement.seats, agreement.study.scheme
    if len(set(seats)) != len(seats) or set(agreement.contributors) - set(seats) - set(sites):
        raise ConfigError(f"a party has a name that {scheme.name} keeps for itself; known roles: {', '.join(seats)}")
    run_id = coins.bytes(16).hex()
    every = {**{seat: MemorySite(seat) for seat in seats if agreement.host(seat) not in sites}, **sites}
    jobs: dict[str, Job] = {name: scheme.job(agreement, site, run_id) for name, site in every.items()}
    hosts = {seat: agreement.host(seat) for seat in seats}
    return run_jobs(jobs, hosts, agreement.bound_to, run_id, coins, faults=faults, keep=keep)
