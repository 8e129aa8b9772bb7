"""A tally of random instances with random true classes, and its plain totals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from blindbayes.protocols.memory import Outcome, local_runs, run_in_memory
from blindbayes.protocols.shared_inference.query import Labelled, SharedArgmaxSetup
from blindbayes.protocols.shared_inference.roles import attribute_holder, class_holder
from blindbayes.protocols.shared_training.shared_model import score
from support.argmax import Setup, with_classes
from support.two_party import anew, coins

ROWS = 40


class Tally:
    """Roles of all parties, from fixed coins."""

    def __init__(
        self, classes: int, holders: tuple[str, ...] = ("attributes",), learners: tuple[str, ...] | None = None
    ) -> None:
        self.setup: Any = Setup(with_classes(classes), ROWS, holders=holders)
        self.query: SharedArgmaxSetup = replace(self.setup.query(learners), tally=True)
        self.runs = local_runs(self.setup.parties, coins=coins("run"))
        self.labels = np.array([coins("labels").derive(str(at)).below(classes) for at in range(ROWS)])

    def role(self, name: str) -> Any:
        setup = self.setup
        if name == "class":
            tables = {holder: {each: setup.mine[each] for each in names} for holder, names in setup.shared.items()}
            senders = {holder: anew(link[0]) for holder, link in setup.links.items()}
            local = Labelled(setup.local(), self.labels)
            return class_holder(self.runs["class"], self.query, local, tables, senders, coins("c"))
        values = setup.block.columns
        share = score({each: setup.theirs[each] for each in setup.shared[name]}, values, setup.plan, ROWS)
        return attribute_holder(self.runs[name], self.query, share, values, anew(setup.links[name][1]), coins(name))

    def run(self, **options: Any) -> Outcome:
        return run_in_memory({name: self.role(name) for name in self.setup.parties}, **options)

    def totals(self) -> np.ndarray:
        count = self.query.plan.classes
        return np.bincount(self.labels * count + self.setup.expected(), minlength=count * count)
