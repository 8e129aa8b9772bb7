"""Training and joint classification over links, envelopes and journals: the same roles, through a crash of either party."""

import asyncio

import numpy as np
import pytest

from blindbayes.codebook import Categorical, Numeric
from blindbayes.protocol import columns as roles
from blindbayes.protocol.columns import Columns
from blindbayes.runtime.courier import MemoryHub
from blindbayes.runtime.envelope import Sealed, unpack
from blindbayes.runtime.link import Timing
from blindbayes.statistics import Block
from support.columns import Case, book, draw_block
from support.mesh import Mesh, Site

BOOK = book([Categorical("v", ("0", "1", "2")), Numeric("x", 0, 20)], classes=("a", "b"), floor=0.5)
NAMES = ("class", "attributes")
SLOW = Timing(step=20.0, join=20.0, run=120.0, beat=0.2, retry=0.1)


def makes(block, queries):
    """Per party one role: train, then classify, then hand back (share of the sums, classes)."""
    rows, count = block.rows, queries.rows
    columns = Columns(BOOK, rows, {"class": (), "attributes": BOOK.names}, ("class",))
    query = columns.query(count)
    counts = np.bincount(block.labels, minlength=2)

    def class_holder(run, coins):
        trained = yield from roles.train_class_holder(run, columns, counts, lambda: [block.labels], coins)
        local = np.repeat(roles.prior(counts, columns.plan)[None], count, axis=0)
        classes = yield from roles.predict_class_holder(run, query, local, trained.tables, trained.keepers, coins)
        return trained.sums["attributes"], classes

    def attribute_holder(run, coins):
        trained = yield from roles.train_attribute_holder(run, columns, [Block(None, block.columns, rows)], coins)
        tables = trained.tables["class"]
        classes = yield from roles.predict_attribute_holder(run, query, None, tables, queries.columns, trained.planter, coins)
        return trained.sums["class"], classes

    return {"class": class_holder, "attributes": attribute_holder}


def check(results, block, queries):
    case = Case(BOOK, block)
    (mine, first), (theirs, second) = (results[name].value for name in NAMES)
    assert np.array_equal(mine + theirs, case.words)
    scores = case.parameters.joint_log_likelihood(queries)
    expected = scores.argmax(axis=1)
    assert np.array_equal(first, second)
    assert not ((first != expected) & ~case.plan.near_tie(scores)).any()
    assert results["class"].opened == results["attributes"].opened == ("class",)


def test_the_roles_run_unchanged_over_links_and_envelopes(tmp_path):
    block, queries = draw_block(BOOK, 120), draw_block(BOOK, 40, "queries")

    async def test():
        async with asyncio.timeout(100):
            results = await Mesh(tmp_path, NAMES, timing=SLOW).run(makes(block, queries))
        for result in results.values():
            if isinstance(result, BaseException):
                raise result
        check(results, block, queries)

    asyncio.run(test())


@pytest.mark.parametrize("at", [2, 5, 7, 9])
@pytest.mark.parametrize("victim", NAMES)
def test_a_party_that_crashes_and_restarts_comes_to_the_same_end(tmp_path, victim, at):
    """The victim dies when its n-th sealed frame has left, and starts again from its journal: nothing is drawn twice."""
    block, queries = draw_block(BOOK, 60), draw_block(BOOK, 10, "queries")
    made = makes(block, queries)

    async def test():
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
        async with asyncio.timeout(100):
            await dead.wait()
            await sites[victim].stop()
            await asyncio.gather(tasks[victim], return_exceptions=True)
            revived = True
            sites[victim] = Site(mesh, victim, made[victim])
            tasks[victim] = asyncio.create_task(sites[victim].go())
            results = dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
        for site in sites.values():
            await site.stop()
        check(results, block, queries)

    asyncio.run(test())
