"""The driver of one process: the tasks that site agents run, at sites in memory, each message really encoded and decoded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.signatures import SigningKey
from blindbayes.disclosure.policy import Policy, require_allowed
from blindbayes.errors import ConfigError
from blindbayes.naive_bayes.base import BaseNaiveBayes
from blindbayes.naive_bayes.load import load
from blindbayes.protocols.memory import Fault, Keep, Outcome, local_runs, run_in_memory
from blindbayes.study.agreement import Agreement
from blindbayes.study.simulation.site import OPEN, MemorySite, key_of
from blindbayes.study.study import Study
from blindbayes.study.tasks.evaluation import evaluation_task
from blindbayes.study.tasks.output_check import with_checks
from blindbayes.study.tasks.result import Result, RunResult
from blindbayes.study.tasks.sums import SumTask
from blindbayes.study.tasks.task import StudyTask, Task
from blindbayes.study.tasks.traits import ModelForm, Support


@dataclass(frozen=True, slots=True)
class Simulation:
    """Every party of a study in this process: tables, and for some of them ledgers and policies."""

    agreed: Study | Agreement
    sources: Mapping[str, Any] = field(repr=False)
    ledgers: Mapping[str, str | os.PathLike[str]] | None = None
    policies: Mapping[str, Policy] | None = None
    coins: Coins | None = None
    keep: Keep = Keep.HEADERS

    def train(
        self, base: Result | None = None, removed: Mapping[str, Any] | None = None, faults: Sequence[Fault] = ()
    ) -> RunResult:
        """Run the study. See `Study.simulate`."""
        study = self.agreed.study if isinstance(self.agreed, Agreement) else self.agreed
        if (base is not None or removed is not None or faults) and Support.INCREMENTS not in study.task_class.supports:
            raise ConfigError(f"{study.protocol}, over {study.partition}, takes no base, removed rows or faults")
        if removed and study.privacy.rows_per_person is not None:
            raise ConfigError("with rows_per_person no rows are taken back: which of a person's rows were counted is not kept")
        coins = self.coins or Coins.system()
        sites = self._sites(key_of(coins), removed or {}, base)
        task = _agree(self.agreed, sites).task
        self._require_runnable(task)
        if base is not None and isinstance(task, SumTask):
            if base.statistics is None:
                raise ConfigError("the earlier result holds probabilities without counts: nothing can be added to it")
            task.require_base(base)
        outcome = _run(task, sites, coins, faults, self.keep)
        shares = {name: site.share_of("") for name, site in sites.items()} if task.model is ModelForm.SHARED else {}
        own = task.at(next(iter(sites.values())), "")
        return with_checks(own, own.local_result(outcome, shares))

    def evaluate(self, model: Result | BaseNaiveBayes | str | os.PathLike[str] | None) -> RunResult:
        """Evaluate a model; without one, cross-validate. See `RowStudy.evaluate`."""
        fitted = load(model) if isinstance(model, str | os.PathLike) else model.model if isinstance(model, Result) else model
        if fitted is not None and not isinstance(fitted, BaseNaiveBayes):
            raise ConfigError("model must be a fitted model, the result of a study that has one, or the path of a model file")
        coins = self.coins or Coins.system()
        sites = self._sites(key_of(coins))
        task = evaluation_task(_agree(self.agreed, sites), fitted)
        self._require_runnable(task)
        outcome = _run(task, sites, coins, (), self.keep)
        own = task.at(next(iter(sites.values())), "")
        return with_checks(own, own.result(outcome))

    def _sites(self, key: bytes, removed: Mapping[str, Any] = {}, base: Result | None = None) -> dict[str, MemorySite]:
        ledgers, policies = self.ledgers or {}, self.policies or {}
        if not isinstance(self.sources, Mapping):
            raise ConfigError("sources maps the name of each party to its table")
        if unknown := sorted({*removed, *ledgers, *policies} - set(self.sources)):
            raise ConfigError(f"{unknown[0]!r} is no party of this run")
        return {
            name: MemorySite(name, source, removed.get(name), ledgers.get(name), policies.get(name, OPEN), base, key=key)
            for name, source in self.sources.items()
        }

    def _require_runnable(self, task: StudyTask) -> None:
        task.require_runnable()
        for policy in (self.policies or {}).values():
            require_allowed(policy, task.disclosure)


def _agree(agreed: Study | Agreement, sites: Mapping[str, MemorySite]) -> Agreement:
    """Return what the sites agree on. Raises unless they are the agreement's parties."""
    agreement = agreed if isinstance(agreed, Agreement) else agreed.task_class.agree_locally(agreed, sites)
    if set(agreement.contributors) - set(sites) or set(sites) - set(agreement.names):
        raise ConfigError(f"the study is between {', '.join(agreement.names)}: bring a table for each that contributes")
    return agreement


def _run(task: StudyTask, sites: Mapping[str, MemorySite], coins: Coins, faults: Sequence[Fault], keep: Keep) -> Outcome:
    """Run every site's task, and those of the roles that no site of this run hosts."""
    agreement, roles = task.agreement, task.roles
    if len(set(roles)) != len(roles) or set(agreement.contributors) - set(roles) - set(sites):
        raise ConfigError(f"a party has a name that {task.name} keeps for itself; known roles: {', '.join(roles)}")
    run_id = coins.bytes(16).hex()
    previous = next(iter(sites.values())).previous
    without_rows = dict.fromkeys(host for role in roles if (host := agreement.host(role)) not in sites)
    hosted = {host: MemorySite(host, previous=previous) for host in without_rows}
    every = {**hosted, **sites}
    tasks = {name: task.at(site, run_id) for name, site in every.items()}
    hosts = {role: agreement.host(role) for role in roles}
    return run_tasks(tasks, hosts, agreement.bound_to, run_id, coins, faults=faults, keep=keep)


def run_tasks(
    tasks: Mapping[str, Task],
    hosts: Mapping[str, str],
    study: str,
    run_id: str,
    coins: Coins,
    *,
    faults: Sequence[Fault] = (),
    keep: Keep = Keep.HEADERS,
) -> Outcome:
    """Run every site's task to the end; `hosts` maps roles to sites. Each reads and pays before anything is sent."""
    coins = coins.derive(f"run {run_id}")  # two runs on the same coins never share noise or masks
    for task in tasks.values():
        task.read()
    for name, host in hosts.items():
        tasks[host].authorise_and_charge(name)
    keys = {name: identity_of(study, name) for name in hosts}
    runs = local_runs(tuple(hosts), study=study, run_id=run_id, coins=coins.derive("identities"), keys=keys)
    roles = {name: tasks[host].role(name, runs[name], coins.derive(f"party {name}")) for name, host in hosts.items()}
    outcome = run_in_memory(roles, faults=faults, keep=keep)
    outputs: dict[str, dict[str, object]] = {}
    for name, host in hosts.items():
        if name in outcome.outputs:
            outputs.setdefault(host, {})[name] = outcome.outputs[name]
    for host, own in outputs.items():
        tasks[host].store(own)
    return outcome


def identity_of(study: str, name: str) -> SigningKey:
    """Return the identity of a site in memory.

    It is the same in all runs of a study, so that what a site signed in one run can be shown after another, and no secret.
    """
    return SigningKey.generate(Coins.seeded(hashlib.sha256(f"site in memory\n{study}\n{name}".encode()).digest()))
