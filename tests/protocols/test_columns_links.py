"""Training and joint classification over links, envelopes and journals: the same roles, through a crash of either party."""

import asyncio

import numpy as np
import pandas as pd
import pytest

from blindbayes import ColumnStudy
from blindbayes.codebook import Categorical, Numeric
from blindbayes.data.columns import open_columns
from blindbayes.errors import BlindbayesError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.net.envelope import Sealed, unpack
from blindbayes.net.sessions import Timing
from blindbayes.protocols.shared_training import columns as roles
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.statistics import CodedRows
from blindbayes.study.simulation.models import JointModel
from blindbayes.study.tasks.columns import whole_block
from support.clock import bounded
from support.columns import Case, book, draw_block
from support.hub import MemoryHub
from support.mesh import Mesh, Site
from support.oracles import near_tie
from support.two_party import coins

BOOK = book([Categorical("v", ("0", "1", "2")), Numeric("x", 0, 20)], classes=("a", "b"), floor=0.5)
NAMES = ("class", "attributes")
SLOW = Timing(step=20.0, join=20.0, run=120.0, beat=0.2, retry=0.1)


def makes(block, queries):
    """Per party one role: train, then classify, then hand back (share of the sums, classes)."""
    rows, count = block.rows, queries.rows
    columns = ColumnsSetup(BOOK, rows, {"class": (), "attributes": BOOK.names}, ("class",))
    query = columns.query(count)
    counts = np.bincount(block.labels, minlength=2)

    def class_holder(run, own):
        trained = yield from roles.train_class_holder(run, columns, counts, lambda: [block.labels], own)
        local = np.repeat(roles.prior(counts, columns.plan)[None], count, axis=0)
        classes = yield from roles.predict_class_holder(run, query, local, trained.tables, trained.ot_senders, own)
        return trained.sums["attributes"], classes

    def attribute_holder(run, own):
        trained = yield from roles.train_attribute_holder(run, columns, [CodedRows(None, block.columns, rows)], own)
        tables = trained.tables["class"]
        classes = yield from roles.predict_attribute_holder(
            run, query, tables, roles.Instances(queries.columns), trained.ot_receiver, own
        )
        return trained.sums["class"], classes

    return {"class": class_holder, "attributes": attribute_holder}


def check(results, block, queries):
    case = Case(BOOK, block)
    (mine, first), (theirs, second) = (results[name].value for name in NAMES)
    assert np.array_equal(mine + theirs, case.words)
    scores = case.parameters.joint_log_likelihood(queries)
    expected = scores.argmax(axis=1)
    assert np.array_equal(first, second)
    assert not ((first != expected) & ~near_tie(case.plan, scores)).any()
    assert results["class"].opened == results["attributes"].opened == ("class",)


def test_the_roles_run_unchanged_over_links_and_envelopes(tmp_path):
    block, queries = draw_block(BOOK, 120), draw_block(BOOK, 40, "queries")

    async def test():
        results = await Mesh(tmp_path, NAMES, timing=SLOW).run(makes(block, queries))
        for result in results.values():
            if isinstance(result, BaseException):
                raise result
        check(results, block, queries)

    bounded(test, 100)


async def crash_and_restart(tmp_path, made, victim, at):
    """The victim dies when its n-th sealed frame has left, and starts again from its journal; everybody's results."""
    sent, revived, dead = 0, False, asyncio.Event()

    def count(sender, to, frame):
        nonlocal sent
        if sender == victim and isinstance(unpack(frame), Sealed):
            sent += 1
            if sent >= at and not revived:
                dead.set()
                return []
        return [frame]

    mesh = Mesh(tmp_path, NAMES, timing=SLOW, hub=MemoryHub(count))
    sites = {name: Site(mesh, name, made[name]) for name in NAMES}
    tasks = {name: asyncio.create_task(site.go()) for name, site in sites.items()}
    await dead.wait()
    await sites[victim].stop()
    await asyncio.gather(tasks[victim], return_exceptions=True)
    revived = True
    sites[victim] = Site(mesh, victim, made[victim])
    tasks[victim] = asyncio.create_task(sites[victim].go())
    results = dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
    for site in sites.values():
        await site.stop()
    return results


@pytest.mark.parametrize("at", [2, 5, 7, 9])
@pytest.mark.parametrize("victim", NAMES)
def test_a_party_that_crashes_and_restarts_comes_to_the_same_end(tmp_path, victim, at):
    """Nothing is drawn twice."""
    block, queries = draw_block(BOOK, 60), draw_block(BOOK, 10, "queries")
    check(bounded(lambda: crash_and_restart(tmp_path, makes(block, queries), victim, at), 100), block, queries)


# -- from share files --------------------------------------------------------------------------------------------------


def kept(folder):
    """A trained model in two share files: (paths, model, the instances that will be asked)."""
    rng = np.random.default_rng(4)
    label = rng.choice(["a", "b"], 80)
    frame = pd.DataFrame({"v": rng.choice(["0", "1", "2"], 80), "x": rng.integers(0, 21, 80), "y": label})
    parts = {"class": frame[["y"]], "attributes": frame[["v", "x"]]}
    result = ColumnStudy(BOOK, options={"queries": 100}).simulate(parts, coins=coins("kept"))
    where = result.save(folder)
    return {name: where / f"{name}.share" for name in NAMES}, result.model, frame[["v", "x"]][:12]


def asking(paths, columns, block):
    """Per party one role that classifies from nothing but the party's own share file and its own instances."""
    query = columns.query(block.rows)

    def class_holder(run, own):
        share = ModelShare.load(paths["class"])
        ot_sender = yield from transfer.ot_sender(run, "attributes", own)
        local = np.repeat(roles.prior(np.array(share.local["class_counts"]), columns.plan)[None], block.rows, axis=0)
        return (yield from roles.predict_class_holder(run, query, local, share.tables, {"attributes": ot_sender}, own))

    def attribute_holder(run, own):
        share = ModelShare.load(paths["attributes"])
        ot_receiver = yield from transfer.ot_receiver(run, "class", own)
        return (
            yield from roles.predict_attribute_holder(
                run, query, share.tables["class"], roles.Instances(block.columns), ot_receiver, own
            )
        )

    return {"class": class_holder, "attributes": attribute_holder}


@pytest.mark.parametrize("at", [2, 4])
@pytest.mark.parametrize("victim", NAMES)
def test_a_party_restarted_in_the_middle_of_a_classification_finds_its_share_as_it_was(tmp_path, victim, at):
    paths, model, asked = kept(tmp_path / "shares")
    before = {name: path.read_bytes() for name, path in paths.items()}
    made = asking(paths, model.columns, whole_block(open_columns(asked, BOOK)))
    results = bounded(lambda: crash_and_restart(tmp_path / "sites", made, victim, at), 100)
    expected = model.predict({"class": asked[[]], "attributes": asked}, coins=coins("expected"))
    for name in NAMES:
        assert model.classes_[results[name].value].tolist() == expected.tolist()
        assert results[name].opened == ("class",)
    assert {name: path.read_bytes() for name, path in paths.items()} == before


@pytest.mark.parametrize("victim", NAMES)
def test_a_party_that_never_comes_back_costs_the_other_no_share_and_opens_nothing(tmp_path, victim):
    paths, model, asked = kept(tmp_path / "shares")
    before = {name: path.read_bytes() for name, path in paths.items()}
    made = asking(paths, model.columns, whole_block(open_columns(asked, BOOK)))
    survivor = next(name for name in NAMES if name != victim)

    async def test():
        sent = 0

        def count(sender, to, frame):
            nonlocal sent
            sent += sender == victim and isinstance(unpack(frame), Sealed)
            return [] if sender == victim and sent >= 3 else [frame]

        quick = Timing(step=1.0, join=5.0, run=20.0, beat=0.2, retry=0.1)
        results = await Mesh(tmp_path / "sites", NAMES, timing=quick, hub=MemoryHub(count)).run(made)
        assert isinstance(results[survivor], BlindbayesError)

    bounded(test, 100)
    assert {name: path.read_bytes() for name, path in paths.items()} == before
    again = JointModel.load(paths)
    assert len(again.predict({"class": asked[[]], "attributes": asked}, coins=coins("again"))) == 12
