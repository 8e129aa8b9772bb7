"""A model of random tables in shares, two parties' identifiers and codes: the cases of the tests of joined_scores."""

import numpy as np

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.private_join.scores import roles as joined_scores
from blindbayes.protocols.private_join.scores.roles import NONE, HelperInput, JoinedScoresSetup, ScorerInput
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes.protocols.shared_training import shared_model
from blindbayes.statistics import MISSING
from support.plain_model import to_integers
from support.two_party import coins

FEATURES = {
    "bank": (Categorical("sector", ("a", "b", "c")), Numeric("income", -20, 20)),
    "telecom": (Categorical("plan", ("s", "m", "l", "x")), Numeric("minutes", -50, 50, 0.5), Categorical("abroad", ("0", "1"))),
}
CLASSES = ("k0", "k1", "k2", "k3", "k4", "k5")


class Case:
    """A model of random tables in shares, and two parties' identifiers and codes."""

    def __init__(
        self, to="bank", scope="everybody", *, inner=True, classes=2, sizes=(60, 50), overlap=20, bound=MIN_BOUND, held=FEATURES
    ):
        features = tuple(feature for own in held.values() for feature in own)
        book = Codebook("y", CLASSES[:classes], features, variance_floor=0.5)
        owners = {party: tuple(feature.name for feature in own) for party, own in held.items()}
        self.join = JoinSetup(book, owners, "bank", dict.fromkeys(owners, bound), inner, "first")
        self.hidden = JoinedScoresSetup(self.join, to, scope)
        self.to, self.other = to, "telecom" if to == "bank" else "bank"
        self.plan = plan = self.join.columns.plan
        self.rng = np.random.default_rng([classes, overlap, *sizes])
        self.tables = {name: self.table(plan.features[name]) for name in plan.features}
        self.prior = self.numbers((1, plan.classes - 1))
        ids = self.rng.integers(0, 2**63, (sum(sizes) - overlap, 2)).astype(np.uint64)
        self.items = {to: ids[: sizes[0]], self.other: ids[sizes[0] - overlap :]}
        self.codes = {
            party: {feature.name: self.draw(feature, len(self.items[party])) for feature in own} for party, own in held.items()
        }
        self.shared = np.arange(sizes[0]) >= sizes[0] - overlap
        self.overlap = overlap

    def numbers(self, shape):
        values = np.rint(self.rng.normal(0, 2, shape) * 2.0**self.plan.fraction)
        return lm.cut(lm.from_floats(values, self.plan.limbs), self.plan.bits)

    def table(self, own):
        found = np.zeros((own.selectors, own.entries, self.plan.classes - 1, self.plan.limbs), dtype=np.uint64)
        found[:, 1:] = self.numbers((own.selectors, own.entries - 1, self.plan.classes - 1))
        return found

    def draw(self, feature, count):
        if isinstance(feature, Categorical):
            return self.rng.integers(-1, feature.size, count)
        codes = self.rng.integers(feature.code_low, feature.code_high + 1, count)
        return np.where(self.rng.random(count) < 0.2, MISSING, codes)

    def split(self, whole):
        rng = np.random.default_rng(int(whole.sum()) % 2**31)
        mask = lm.cut(rng.integers(0, 2**63, whole.shape, dtype=np.uint64), self.plan.bits)
        return {"bank": mask, "telecom": lm.cut(lm.subtract(whole, mask), self.plan.bits)}

    def share(self, party):
        """A party's tables: shares, or whole or none of the class holder's own in a left join."""
        found = {}
        for name, whole in self.tables.items():
            if self.join.is_shared(name):
                table = self.split(whole)[party].copy()
                table[:, 0] = 0
                found[name] = table
            elif party == "bank":
                found[name] = whole
        return found

    def known(self, party):
        if self.join.inner:
            return self.split(self.prior)[party][0]
        return self.prior[0] if party == "bank" else np.zeros_like(self.prior[0])

    def helper(self):
        """What the helper brings, its transfers and its run, to drive its role alone."""
        runs = local_runs(["bank", "telecom"], coins=coins("run"))
        linked = run_in_memory({name: joined_scores.connect(runs[name], self.hidden, coins("links " + name)) for name in runs})
        theirs = self.share(self.other)
        helped = HelperInput(self.items[self.other], self.codes[self.other], self.known(self.other), theirs, theirs)
        return helped, linked.outputs[self.other], runs[self.other]

    def roles(self, *, other=None, keys=("s", "h"), run="run", runs=None):
        """The two roles; `other`: the helper's idea of what is public."""
        runs = runs or local_runs(["bank", "telecom"], coins=coins(run))
        mine, theirs = self.share(self.to), self.share(self.other)
        own = {name: mine[name] for name in self.join.owners[self.to]}
        known = shared_model.score(own, self.codes[self.to], self.plan, len(self.items[self.to]))
        known = lm.add(known, np.broadcast_to(self.known(self.to), known.shape))
        asked = ScorerInput(self.items[self.to], known, self.codes[self.to], {self.other: mine}, self.known(self.to))
        helped = HelperInput(self.items[self.other], self.codes[self.other], self.known(self.other), theirs, theirs)

        def first():
            links = yield from joined_scores.connect(runs[self.to], self.hidden, coins("links " + keys[0]))
            return (yield from joined_scores.scorer(runs[self.to], self.hidden, asked, links, coins(keys[0])))

        def second():
            hidden = other or self.hidden
            links = yield from joined_scores.connect(runs[self.other], hidden, coins("links " + keys[1]))
            return (yield from joined_scores.helper(runs[self.other], hidden, helped, links, coins(keys[1])))

        return {self.to: first(), self.other: second()}

    def expected(self):
        """Classes in clear, by exact integers."""
        count = len(self.items[self.to])
        scores = shared_model.score(self.pick(self.to), self.codes[self.to], self.plan, count)
        scores = lm.add(scores, np.broadcast_to(self.prior[0], scores.shape))
        theirs = {name: codes[: self.overlap] for name, codes in self.codes[self.other].items()}
        more = shared_model.score(self.pick(self.other), theirs, self.plan, self.overlap)
        scores[self.shared] = lm.add(scores[self.shared], more)
        flat = to_integers(lm.cut(scores, self.plan.bits).reshape(-1, self.plan.limbs), self.plan.bits)
        found = np.array([[0, *row] for row in np.array(flat, dtype=object).reshape(count, self.plan.classes - 1)])
        classes = found.argmax(axis=1) if count else np.zeros(0, dtype=np.int64)
        return np.where(self.shared, classes, NONE) if self.hidden.scope == "shared" else classes

    def pick(self, party):
        return {name: self.tables[name] for name in self.join.owners[party]}
