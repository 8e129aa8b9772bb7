"""A study: who may learn what from whose data, and its run in one process.

`Study` holds what the parties agreed on; `simulate` runs it with every party's role in this process, each message really
encoded and decoded; `Result` holds the model and the answers for a privacy officer: who learned what, at what cost, under
which promise.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from blindbayes.codebook import Codebook
from blindbayes.data import count_table
from blindbayes.data.persons import Persons, require_identifier, require_most
from blindbayes.errors import ConfigError, DataError, PeerProtocolError, PrivacyError
from blindbayes.estimators import NaiveBayes
from blindbayes.ledger import Ledger
from blindbayes.model.file import ModelRecord
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.accounting import Spend
from blindbayes.privacy.chance import written
from blindbayes.privacy.distributed import DistributedNoise, dishonest
from blindbayes.privacy.noisy_sum import NoisySum
from blindbayes.privacy.pollution import require_possible
from blindbayes.privacy.released import require_small_delta
from blindbayes.protocol import registry
from blindbayes.protocol.masked_sum.keys import OPTIONS as MASKED_SUM
from blindbayes.report import (
    LeakReport,
    follows_from_sum,
    leak_report,
)
from blindbayes.scheme.result import Leak, Result
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics.feasible import require_plausible
from blindbayes.transport.memory import Fault, Outcome, local_runs, run_in_memory
from blindbayes.wire import Words
from blindbayes.wire.transcript import Keep

Partition = Literal["rows", "columns"]
EXACT = (
    "No noise: the statistics are exact. Nothing but the sum was opened, and the sum itself is not differentially private: "
    "whoever knows all other records of a cell can compute the last one."
)
FEWEST_EXACT = 3  # an exact sum of two tells each the other's
RATIO = "private_ratio"  # for rows, but no sum: it has its own run
PRINTED = "scalar_product"  # the paper's own route, for rows and for columns


class Study:
    """What the parties agreed on.

    Parameters
    ----------
    codebook : Codebook
    partition : "rows" or "columns"
        Whether the parties hold different records or different columns of the same records.
    protocol : str, default=None
        For rows "masked_sum" (default), "ring_sum", "chain_sum", "oblivious_sum", or "reference", which protects nothing;
        or "private_ratio", which sums nothing in the open: probabilities in shares, or opened as its options say; or
        "scalar_product", Vaidya's own protocols, for comparison.
    epsilon, delta : float
        Differential privacy of the opened sum, by noise that the parties add together. None: the exact sum is opened.
        Over columns in shares: of all answers that the model ever gives, by noise of every party in the shares.
    mechanism : str
        "auto", "polya", "skellam" or "diluted".
    unit : "record" or "party"
        Whom epsilon protects: one record, or all records of a party (then `party_rows` is the largest party's size).
        "person", as earlier versions wrote, is "record".
    rows_per_person : int, default=None
        With epsilon, over rows: each party counts at most so many rows of a person, by the codebook's identifier, drawn at
        random, and noise protects such a person within a party.
    rows : int, default=None
        With epsilon: the declared number of rows of all parties together, a public figure or a guess. It decides how fine
        the released tables are, and steadies the estimates.
    gamma : float, default=2/3
        The fraction of parties assumed honest; noise is calibrated to the fewest honest parties that any sum the protocol can
        be made to open may hold.
    quorum : int, default=None
        The fewest contributors whose sum may be opened. By default two thirds (nine tenths of more than 64) for masked_sum,
        everybody for the others.
    min_parties : int, default=None
        Refuse a run with fewer parties. By default 3, or 2 with epsilon.
    min_rows : int, default=0
        Refuse a run in which a party holds fewer rows.
    min_cell : int, default=0
        With epsilon: noisy counts below it are published as 0. Exact sums are never altered. Over columns in shares, with or
        without epsilon: counters below it are set to 0 inside the circuit.
    options : mapping
        Options of the protocol, as its SPEC lists them.
    alpha, var_smoothing : float
        As in `NaiveBayes`.
    reveal_to, key, aligned, duplicates
        For columns.
    """

    def __init__(
        self,
        codebook: Codebook,
        *,
        partition: Partition = "rows",
        protocol: str | None = None,
        epsilon: float | None = None,
        delta: float = 0.0,
        mechanism: Literal["auto", "polya", "skellam", "diluted"] = "auto",
        unit: Literal["record", "party", "person"] = "record",
        party_rows: int | None = None,
        rows_per_person: int | None = None,
        rows: int | None = None,
        gamma: float = 2 / 3,
        quorum: int | None = None,
        min_parties: int | None = None,
        min_rows: int = 0,
        min_cell: int = 0,
        options: Mapping[str, Any] | None = None,
        alpha: float = 1.0,
        var_smoothing: float = 1e-9,
        reveal_to: str = "all",
        key: str | Sequence[str] | None = None,
        aligned: bool = True,
        duplicates: str = "join",
    ) -> None:
        if partition not in ("rows", "columns"):
            raise ConfigError("partition is 'rows' or 'columns'")
        if protocol is None:
            protocol = "masked_sum" if partition == "rows" else ("class_sums" if aligned else "joined_sums")
        if partition == "rows" and protocol not in (known := (*registry.ROWS, RATIO, PRINTED)):
            raise ConfigError(f"there is no rows protocol {protocol!r}; known: {', '.join(known)}")
        if epsilon is not None and not (math.isfinite(epsilon) and epsilon > 0):
            raise PrivacyError("epsilon must be a positive number, or None for an exact sum")
        require_small_delta(codebook, delta, rows)
        if epsilon is not None and codebook.provenance == "inferred":
            raise PrivacyError("this codebook was inferred from training data, which leaks it; declare one for a private study")
        if rows_per_person is not None:
            if epsilon is None or partition != "rows" or unit == "party":
                raise ConfigError("rows_per_person is for studies over rows with epsilon, whose unit is a record; leave it out")
            require_most(rows_per_person)
            require_identifier(codebook)
        if min_parties is None:
            min_parties = FEWEST_EXACT if epsilon is None else 2
        if min_parties < 2 or min_rows < 0:
            raise ConfigError("min_parties is at least 2 and min_rows is not negative")
        if min_cell < 0:
            raise ConfigError("min_cell is not negative")
        in_shares = partition == "columns" and protocol in ("class_sums", "joined_sums")
        if min_cell and not in_shares and (epsilon is None or partition != "rows" or protocol in (RATIO, PRINTED)):
            raise ConfigError(
                "min_cell hides small counts of noisy sums over rows, and of models in shares: an exact sum with altered cells "
                "is neither exact nor private; set epsilon, or min_cell = 0"
            )
        self.codebook = codebook
        self.partition: Partition = partition
        self.protocol = protocol
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism: Literal["auto", "polya", "skellam", "diluted"] = mechanism
        self.unit: Literal["record", "party"] = "record" if unit == "person" else unit
        self.rows_per_person = rows_per_person
        self.party_rows = party_rows
        self.rows = rows
        self.gamma = gamma
        self.quorum = quorum
        self.min_parties = min_parties
        self.min_rows = min_rows
        self.min_cell = min_cell
        self.options = dict(options or {})
        self.alpha = alpha
        self.var_smoothing = var_smoothing
        self.reveal_to = reveal_to
        self.key = key
        self.aligned = aligned
        self.duplicates = duplicates
        self._plans: dict[tuple[int, int], NoisySum] = {}

    @property
    def is_private(self) -> bool:
        """Whether noise is added to what is counted: then no row may be an error."""
        return self.epsilon is not None

    def persons(self, coins: Coins) -> Persons | None:
        """How many rows of a person count, drawn by a party's own coins; None: all of them."""
        return None if self.rows_per_person is None else Persons(self.rows_per_person, coins.bytes(32))

    def to_dict(self) -> dict[str, Any]:
        """Everything agreed on, as plain builtins; the codebook by its hash."""
        fields = {name: value for name, value in vars(self).items() if name != "codebook" and not name.startswith("_")}
        if self.rows_per_person is None:  # a later setting: at its default it leaves earlier hashes as they are
            del fields["rows_per_person"]
        return {"format": "blindbayes.study/1", "codebook": self.codebook.sha256, **fields}

    @property
    def sha256(self) -> str:
        """Identifies the study; every key and signature of a run is bound to it."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    # -- rows ----------------------------------------------------------------------------------------------------------

    def setting(self, contributors: Sequence[str]) -> registry.Setting:
        """The public setting of the sum for these contributors, or an error if policy forbids it."""
        names = tuple(contributors)
        if len(names) < self.min_parties:
            raise PrivacyError(
                f"the study asks for at least {self.min_parties} parties; {len(names)} take part. Two sites may sum with an "
                "epsilon, or hold different columns"
            )
        quorum = self.quorum
        if quorum is None and self.protocol == "masked_sum":
            share = Fraction(2, 3) if len(names) <= 64 else Fraction(9, 10)  # sparse graphs tolerate fewer losses
            quorum = max(math.ceil(share * len(names)), min(FEWEST_EXACT, len(names)), self._fewest_agreed(len(names)))
        options = self._graph_options(len(names))
        setting = registry.Setting(names, 1, quorum, noisy=self.epsilon is not None, options=options)
        if self.epsilon is None and setting.fewest < FEWEST_EXACT:
            raise PrivacyError(
                "an exact sum of two parties tells each the other's statistics; "
                "take a third party, a quorum of at least 3, or set epsilon"
            )
        plan = self.plan(setting)
        if plan is not None:
            return replace(setting, length=plan.length, bound=plan.bound(len(names)))
        layout = Layout(self.codebook)
        return replace(setting, length=layout.word_count, bound=2**63 - 1 if layout.is_wide else max(layout.bounds))

    def _fewest_agreed(self, parties: int) -> int:
        """Under noise: so many survivors that the dishonest and a server that deviates cannot have two sets of them opened."""
        if self.epsilon is None or not self.options.get("malicious_server", True):
            return 0
        return min((parties + dishonest(parties, self.gamma)) // 2 + 1, parties)

    def _graph_options(self, parties: int) -> Mapping[str, Any]:
        """Under noise, a sparse graph is planned for as many colluders as gamma allows, unless the study says how many."""
        if self.epsilon is None or self.protocol != "masked_sum" or "corrupt" in self.options:
            return self.options
        usual = MASKED_SUM["corrupt"]
        return {**self.options, "corrupt": max(usual, dishonest(parties, self.gamma) / parties)}

    def smallest(self, setting: registry.Setting) -> registry.Smallest:
        """The smallest sum that the dishonest can have opened, with a reader that deviates where the protocol bears it.

        Raises `PrivacyError` where that might hold no honest party's noise.
        """
        size, protocol = len(setting.contributors), registry.load(self.protocol)
        corrupt, malicious = dishonest(size, self.gamma), protocol.resists(setting)
        found = protocol.smallest(setting, corrupt, malicious=malicious)
        if found.honest < 1:
            reader = "a reader that deviates" if malicious else "the reader"
            raise PrivacyError(
                f"gamma lets {corrupt} of {size} parties be dishonest, and together with {reader} of {self.protocol} they "
                "could have a sum opened that holds no honest noise: raise the quorum or gamma, or take more neighbours"
            )
        return found

    def plan(self, setting: registry.Setting) -> NoisySum | None:
        """What is counted and which noise the contributors add together; None for an exact sum.

        Whoever looks at the sum knows its own share of the noise, so at most the fewest survivors but one count as honest.
        """
        if self.epsilon is None:
            return None
        key = (len(setting.contributors), setting.fewest)
        if key not in self._plans:
            honest = self.smallest(setting).honest
            self._plans[key] = NoisySum.make(
                self.codebook,
                epsilon=self.epsilon,
                delta=self.delta,
                honest=min(honest, max(setting.fewest - 1, 1)),
                parties=len(setting.contributors),
                rows=self.rows,
                unit=self.unit,
                party_rows=self.party_rows,
                rows_per_person=self.rows_per_person,
                mechanism=self.mechanism,
            )
        return self._plans[key]

    def noise(self, setting: registry.Setting) -> DistributedNoise | None:
        """The noise of the plan; None for an exact sum."""
        plan = self.plan(setting)
        return None if plan is None else plan.noise

    def counting(self, setting: registry.Setting) -> Codebook:
        """The codebook that every contributor counts with: the study's, with finer cells where noise will be added."""
        plan = self.plan(setting)
        return self.codebook if plan is None else plan.codebook

    def contribution(
        self, statistics: Statistics, setting: registry.Setting, coins: Coins, removed: Statistics | None = None
    ) -> Words:
        """One party's vector for the sum: its statistics, less what it takes back, plus its share of the noise."""
        if statistics.codebook != self.counting(setting):
            raise ConfigError("the statistics were not counted with the codebook of `counting`")
        if int(statistics.class_counts.sum()) < self.min_rows:
            raise PrivacyError(f"the study asks for at least {self.min_rows} rows per party")
        self.require_party_rows(statistics, *([] if removed is None else [removed]))
        changed = statistics if removed is None else statistics - removed
        plan = self.plan(setting)
        if plan is None:
            return changed.words
        fresh = coins.derive(f"noise {coins.bytes(16).hex()}")  # a second vector on the same coins gets noise of its own
        noisy: Words = (plan.vector(changed) + plan.noise.share(fresh)).view(np.uint64)
        return noisy

    def require_party_rows(self, *parts: Statistics) -> None:
        """Refuse more rows, added and taken back together, than the noise that protects a whole party is made for."""
        if self.epsilon is None or self.unit != "party" or self.party_rows is None:
            return
        if sum(int(part.class_counts.sum()) for part in parts) > self.party_rows:
            raise PrivacyError("this party brings more rows than the study's party_rows, which the noise is made for")

    def simulate(
        self,
        sources: Mapping[str, Any],
        *,
        base: Result | None = None,
        removed: Mapping[str, Any] | None = None,
        ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
        coins: Coins | None = None,
        faults: Sequence[Fault] = (),
        keep: Keep = Keep.HEADERS,
    ) -> Any:
        """Run the study in this process. `sources` maps each party to its frame, path, URL, source or `Statistics`.

        With `base`, an earlier result, the sources hold only new rows (and `removed` rows to take back), and the new
        statistics are added to the earlier ones. `ledgers` maps parties to their ledger files, which a study with epsilon
        charges before anything is sent. Returns a `Result` for rows, a `RatioResult` for private_ratio, and what the
        protocol for columns returns.
        """
        coins = Coins.system() if coins is None else coins
        if self.partition == "columns":
            if base is not None or removed is not None or faults:
                raise ConfigError("a study over columns takes no base, removed rows or faults")
            if unknown := sorted(set(ledgers or {}) - set(sources)):
                raise ConfigError(f"{unknown[0]!r} is no party of this run")
            from blindbayes.simulation import columns

            return columns.simulate(self, sources, coins=coins, ledgers=ledgers)
        if unknown := sorted({*(removed or {}), *(ledgers or {})} - set(sources)):
            raise ConfigError(f"{unknown[0]!r} is no party of this run")
        if self.protocol in (RATIO, PRINTED):
            if base is not None or removed or faults:
                raise ConfigError(f"{self.protocol} takes no base, removed rows or faults")
            if self.protocol == PRINTED:
                from blindbayes.papers.vaidya2008 import rows as printed_rows

                return printed_rows.simulate(self, sources, coins=coins)
            from blindbayes.scheme import ratio

            return ratio.simulate_study(self, sources, ledgers=ledgers or {}, coins=coins)
        return self._simulate_rows(sources, base, removed or {}, ledgers or {}, coins, faults, keep)

    def _simulate_rows(
        self,
        sources: Mapping[str, Any],
        base: Result | None,
        removed: Mapping[str, Any],
        ledgers: Mapping[str, str | os.PathLike[str]],
        coins: Coins,
        faults: Sequence[Fault],
        keep: Keep,
    ) -> Result:
        setting = self.setting(tuple(sources))
        if removed and self.rows_per_person is not None:
            raise ConfigError("with rows_per_person no rows are taken back: which of a person's rows were counted is not kept")
        if base is not None and (base.total is not None) != (self.epsilon is not None):
            raise ConfigError("a study with epsilon does not go on from one without, or the other way round")
        if base is not None and base.statistics.codebook != self.counting(setting):
            raise ConfigError("the earlier result has another codebook, or was planned otherwise")
        protocol = registry.load(self.protocol)
        roster = protocol.roster(setting)
        if len(set(roster)) != len(roster):
            raise ConfigError(f"a party has a name that {self.protocol} keeps for itself; known roles: {', '.join(roster)}")
        run_id = coins.bytes(16).hex()
        coins = coins.derive(f"run {run_id}")  # two runs on the same coins never share noise or masks
        vectors = {}
        book = self.counting(setting)
        for name, source in sources.items():
            taken = count_table(removed[name], book, total=self.is_private) if name in removed else None
            persons = self.persons(coins.derive(f"rows of {name}"))
            own = count_table(source, book, total=self.is_private, persons=persons)
            require_plausible(own, complete=not self.is_private)
            if name in ledgers:
                self._charge(ledgers[name], setting)
            vectors[name] = self.contribution(own, setting, coins.derive(f"noise of {name}"), taken)
        runs = local_runs(roster, study=self.sha256, run_id=run_id, coins=coins.derive("identities"))
        roles = registry.simulate_roles(protocol, runs, setting, vectors, coins)
        outcome = run_in_memory(roles, faults=faults, keep=keep)
        total = _agreed_total(outcome, protocol.learners(setting))
        return self.result(setting, total, outcome, base)

    def _charge(self, ledger: str | os.PathLike[str], setting: registry.Setting) -> None:
        """Pay for the release from one party's ledger. An exact sum costs nothing that a ledger can express."""
        plan = self.plan(setting)
        if plan is not None:
            price = plan.price
            spend = Spend(written(price.epsilon), written(price.delta))
            Ledger(ledger).charge(spend, purpose=f"study {self.protocol}", unit=price.unit, study=self.sha256)

    def result(
        self,
        setting: registry.Setting,
        total: registry.Total,
        outcome: Outcome,
        base: Result | None,
        agreed: str | None = None,
    ) -> Result:
        """What the opened total means. `agreed` is the hash of the study file that the sites approved, where there is one."""
        sha256 = self.sha256 if agreed is None else agreed
        leakage = {
            name: Leak({kind.__name__: (kind.trust.value, count) for kind, count in received.items()}, outcome.opened[name])
            for name, received in outcome.transcript.received.items()
        }
        runs = 1 if base is None else base.runs + 1
        report = self._report(setting, total, outcome)
        known = {"study": sha256, "protocol": self.protocol, "opened": setting.label}
        facts = [
            f"Study {sha256}",
            f"Protocol {self.protocol}; {len(setting.contributors)} contributors, {len(total.included)} of them in the sum; "
            f"quorum {setting.fewest}.",
            f"Opened: {setting.label}. Who learned it stands in the leak report.",
        ]
        if self.protocol == "reference":
            facts.append("The protocol `reference` shows every party's vector to the collector: it protects nothing.")
        plan = self.plan(setting)
        if plan is None:
            statistics, model = self._exact(total, base)
            facts += [f"Codebook {self.codebook.sha256}", EXACT]
            text = "\n\n".join(facts)
            return Result(
                model, statistics, leakage, outcome.cost, text, total.included, (0.0, 0.0), runs, report=report, facts=known
            )
        words = total.words.view(np.int64) + (0 if base is None or base.total is None else base.total)
        shares = len(total.included) + (0 if base is None else base.shares)
        try:
            require_possible(plan, words, shares=shares)
        except DataError as cause:
            raise PeerProtocolError(f"the noisy total is that of no table: {cause}", suspects=total.included) from cause
        before = (0.0, 0.0) if base is None else base.spent
        spent = (before[0] + plan.price.epsilon, before[1] + plan.price.delta)
        statement = plan.statement(
            trust=self._trust(setting, plan),
            composition=f"{runs} release(s) of this study add up to epsilon = {spent[0]:g}, delta = {spent[1]:g} for whoever "
            "is in the tables of all of them.",
            min_cell=self.min_cell,
            rows_per_person=self.rows_per_person,
        )
        parameters, statistics, released = plan.fit(words, shares=shares, alpha=self.alpha, min_cell=self.min_cell)
        settings = {"alpha": self.alpha, "var_smoothing": self.var_smoothing, "named": False}
        privacy = {**plan.tables.describe(), "mechanism": plan.name, "epsilon": spent[0], "delta": spent[1]}
        privacy |= {"statement": statement.to_dict(), "released": released}
        record = ModelRecord(parameters, statistics, "text", settings, privacy)
        model = NaiveBayes(plan.codebook, alpha=self.alpha, var_smoothing=self.var_smoothing)._restore(record)
        text = "\n\n".join(facts) + "\n\n" + statement.text
        return Result(model, statistics, leakage, outcome.cost, text, total.included, spent, runs, words, shares, report, known)

    def _trust(self, setting: registry.Setting, plan: NoisySum) -> str:
        """Whom the promise relies on, and how far."""
        size, found = len(setting.contributors), self.smallest(setting)
        corrupt, deviates = dishonest(size, self.gamma), registry.load(self.protocol).resists(setting)
        reader = "also deviate" if deviates else "not deviate, but pool what it saw with them"
        graph = f", up to a chance of {_power(found.failure)} over the random graph" if found.failure else ""
        return (
            f"At least {self.gamma:.0%} of the parties follow the protocol, add their noise and keep it to themselves; up to "
            f"{corrupt} of {size} may deviate and collude, and whoever opens the sum may {reader}. Every sum that they can "
            f"have opened holds at least {found.honest} honest shares{graph}: calibrated to {plan.noise.honest}. A party that "
            "takes its own share off the sum counts among the others. Fewer honest shares give less. That nothing but such a "
            "sum is seen is computational: it rests on the protocol's cryptography."
        )

    def _report(self, setting: registry.Setting, total: registry.Total, outcome: Outcome) -> LeakReport:
        size, included = len(setting.contributors), len(total.included)
        follows = follows_from_sum(self.protocol, size, setting.fewest, included, setting.options, noisy=setting.noisy)
        if (plan := self.plan(setting)) is not None:
            follows = (*follows, f"Calibration: {self._trust(setting, plan)}")
        transcript = outcome.transcript
        return leak_report(
            (self.protocol,), size, transcript.received, outcome.opened, transcript.entries, follows, transcript.traffic
        )

    def _exact(self, total: registry.Total, base: Result | None) -> tuple[Statistics, NaiveBayes]:
        statistics = Statistics.from_words(Layout(self.codebook), total.words)
        if base is not None:
            statistics = base.statistics + statistics
        try:
            require_plausible(statistics.require_bounds())
        except DataError as cause:
            raise PeerProtocolError(
                "the total is not that of any table: a party sent a vector that is none", suspects=total.included
            ) from cause
        return statistics, NaiveBayes.from_statistics(statistics, alpha=self.alpha, var_smoothing=self.var_smoothing)


def _power(chance: float) -> str:
    """A small chance as a power of two, rounded up."""
    return f"2^{math.ceil(math.log2(chance))}"


def _agreed_total(outcome: Outcome, learners: Sequence[str]) -> registry.Total:
    """The total, which must be the same with everybody who learned it."""
    totals = [outcome.outputs[name] for name in learners if outcome.outputs.get(name) is not None]
    if not totals:
        raise PeerProtocolError("nobody learned the total")
    first: registry.Total = totals[0]
    if any(other.included != first.included or not np.array_equal(other.words, first.words) for other in totals[1:]):
        raise PeerProtocolError("two parties learned different totals")
    return first
