"""A joint classification with random tables in two shares, and its plain answer."""

import numpy as np

from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.shared_inference.query import SharedArgmaxSetup
from blindbayes.protocols.shared_inference.roles import attribute_holder, class_holder
from blindbayes.protocols.shared_training.shared_model import ScoreLayout, score
from support.columns import book, draw_block, linked, to_scores
from support.two_party import anew, coins


def with_classes(count):
    return book([Categorical("v", tuple("abcde")), Numeric("x", 0, 20)], classes=tuple(str(at) for at in range(count)))


class Setup:
    """Random tables in two shares, with their plain scores."""

    def __init__(self, codebook, rows, holders=("attributes",), small=False, name="setup"):
        self.plan = ScoreLayout(codebook, 1000)
        self.block = draw_block(codebook, rows, name)
        self.rows, self.holders = rows, holders
        self.parties = ("class", *holders)
        plan = self.plan
        names = list(plan.features)
        self.shared = {holder: tuple(names[at :: len(holders)]) for at, holder in enumerate(holders)}
        source = coins(name)
        limit = 3 if small else 2 ** (plan.bits - 12)
        self.plain, self.mine, self.theirs = {}, {}, {}
        for feature, own in plan.features.items():
            shape = (own.selectors, own.entries, plan.classes - 1)
            values = [source.below(limit) - limit // 2 for _ in range(int(np.prod(shape)))]
            table = lm.cut(lm.from_integers(values, plan.limbs).reshape(*shape, plan.limbs), plan.bits)
            table[:, 0] = 0
            mask = source.words(table.size).reshape(table.shape)
            mask[:, 0] = 0
            self.plain[feature] = table
            self.mine[feature] = lm.cut(mask, plan.bits)
            self.theirs[feature] = lm.cut(lm.subtract(table, mask), plan.bits)
        self.links = {holder: linked("class", holder, self.parties) for holder in holders}

    def local(self):
        source = coins("local")
        limit = 3 if self.plan.bits < 20 else 5
        values = [source.below(limit) for _ in range(self.rows * (self.plan.classes - 1))]
        return lm.from_integers(values, self.plan.limbs).reshape(self.rows, self.plan.classes - 1, self.plan.limbs)

    def expected(self):
        total = lm.add(score(self.plain, self.block.columns, self.plan, self.rows), self.local())
        scores = to_scores(lm.cut(total, self.plan.bits), self.plan)
        full = np.concatenate([np.zeros((self.rows, 1), dtype=object), scores], axis=1)
        return np.array([int(np.argmax(row)) for row in full])

    def query(self, learners=None):
        shared, learners = self.shared, learners or self.parties
        return SharedArgmaxSetup(self.plan, self.rows, "class", self.holders, shared, learners)

    def run(self, learners=None, *, columns=None, **options):
        query = self.query(learners)
        runs = local_runs(self.parties, coins=coins("run"), run_id=options.pop("run_id", "local"))
        tables = {holder: {name: self.mine[name] for name in names} for holder, names in self.shared.items()}
        ot_senders = {holder: anew(link[0]) for holder, link in self.links.items()}
        first = class_holder(runs["class"], query, self.local(), tables, ot_senders, coins("c"))
        roles = {"class": first}
        values = columns or self.block.columns
        for holder, names in self.shared.items():
            share = score({name: self.theirs[name] for name in names}, values, self.plan, self.rows)
            receiver, own = anew(self.links[holder][1]), coins(holder)
            roles[holder] = attribute_holder(runs[holder], query, share, values, receiver, own)
        if replaced := options.pop("replaced", None):  # another role in a party's place
            roles[replaced] = self.other_role(runs[replaced])
        return run_in_memory(roles, **options)
