"""private_ratio: shares of everybody's counts, of which a model classifies as pooled training does."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import blindbayes.protocols.shared_rows as package
from blindbayes.codebook import Codebook, Numeric
from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError, ProtocolError
from blindbayes.protocols.memory import Replace, local_runs, run_in_memory
from blindbayes.protocols.shared_rows.messages import MaskSent, VectorMasked
from blindbayes.protocols.shared_rows.shares import SharedRowsSetup, classify, connect, train
from blindbayes.protocols.shared_training.shared_model.messages import ModelGarbled
from blindbayes.statistics.parameters import estimate
from blindbayes.wire.transcript import Keep
from support.oracles import near_tie
from support.shared_rows import MIXED, NAMES, mixed
from support.two_party import coins

SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])


def trained(rows, own, seed=""):
    runs = local_runs(rows.parties, coins=coins("run"))
    return run_in_memory({name: train(runs[name], rows, rows.vector(own[name]), coins(name + seed)) for name in rows.parties})


@pytest.mark.parametrize("names", [("first", "last"), NAMES, ("first", "p", "q", "r", "s", "last")])
def test_shares_add_up_to_everybodys_counts_and_nothing_is_opened(names):
    _, own, total = mixed(names)
    rows = SharedRowsSetup(MIXED, names)
    outcome = trained(rows, own)
    mine, theirs = outcome.outputs["first"], outcome.outputs["last"]
    assert rows.statistics(mine.sums["last"] + theirs.sums["first"]) == total
    assert all(opened == () for opened in outcome.opened.values())
    assert SPEC["opened"] == []
    garbled_pieces = sum(entry.kind is ModelGarbled for entry in outcome.transcript.entries) // 2
    assert outcome.cost.messages == eval(SPEC["messages"], {}, {"n": len(names), "pieces": garbled_pieces})
    assert outcome.cost.rounds == eval(SPEC["rounds"], {}, {"n": len(names)})
    assert all(outcome.outputs[name].tables == {} for name in names[1:-1])
    again = trained(rows, own, seed="2").outputs["last"]
    for name, table in theirs.tables["first"].items():
        assert not set(table[:, 1:].ravel()) & set(again.tables["first"][name][:, 1:].ravel())


@pytest.mark.parametrize("asker", NAMES)
def test_any_party_may_ask_and_gets_the_class_of_pooled_training(asker):
    blocks, own, total = mixed()
    rows = SharedRowsSetup(MIXED, NAMES)
    tables = {name: made.tables for name, made in trained(rows, own).outputs.items()}
    block, runs = blocks["north"], local_runs(NAMES, coins=coins("ask"))
    query = rows.query(block.rows, asker)

    def role(name):
        links = yield from connect(runs[name], rows, block.rows, asker, coins("links" + name))
        own_tables = next(iter(tables[name].values()), {})
        own_columns = block.columns if name == asker else {}
        return (yield from classify(runs[name], rows, query, own_tables, own_columns, links, coins("ask" + name)))

    outcome = run_in_memory({name: role(name) for name in NAMES})
    scores = estimate(total).joint_log_likelihood(block)
    near = near_tie(rows.plan, scores)
    assert not near.any()
    assert (outcome.outputs[asker] == scores.argmax(axis=1)).all()
    for name in NAMES:
        assert (name == asker) == (outcome.outputs[name] is not None) == (outcome.opened[name] == ("class",))


def test_what_a_model_in_shares_refuses():
    with pytest.raises(ConfigError, match="two parties"):
        SharedRowsSetup(MIXED, ("alone",))
    with pytest.raises(ConfigError, match="no party"):
        SharedRowsSetup(MIXED, NAMES).query(1, "stranger")
    with pytest.raises(ConfigError, match="variance_floor"):
        _ = SharedRowsSetup(Codebook("y", ("a", "b"), (Numeric("x", 0, 1, 0.1),)), NAMES).plan
    rows = SharedRowsSetup(MIXED, NAMES)
    assert SharedRowsSetup.from_dict(rows.to_dict()) == rows
    with pytest.raises(ConfigError, match="several parties"):
        SharedRowsSetup.from_dict({"codebook": ""})
    with pytest.raises(LocalProtocolError):
        run_in_memory(
            {"first": train(local_runs(NAMES, coins=coins("run"))["first"], rows, np.zeros(3, dtype=np.uint64), coins("x"))}
        )


def test_a_computing_party_that_garbles_another_circuit_is_caught_in_training():
    _, own, _ = mixed(rows=20)
    rows, seen = SharedRowsSetup(MIXED, NAMES), []

    def spoil(message):
        seen.append(message)
        return ModelGarbled(message.mark, message.tables ^ np.uint64(2), message.tags, message.last)

    runs = local_runs(NAMES, coins=coins("run"))
    roles_ = {name: train(runs[name], rows, rows.vector(own[name]), coins(name)) for name in NAMES}
    with pytest.raises(IntegrityError):
        run_in_memory(roles_, faults=[Replace(lambda e: e.kind is ModelGarbled, spoil)])
    assert seen


def test_vectors_do_not_stand_in_the_transcript_and_masks_are_fresh():
    _, own, _ = mixed(rows=900)
    rows, runs = SharedRowsSetup(MIXED, NAMES), local_runs(NAMES, coins=coins("run"))
    roles = {name: train(runs[name], rows, rows.vector(own[name]), coins(name)) for name in NAMES}
    outcome = run_in_memory(roles, keep=Keep.FRAMES)
    secrets = [int(word).to_bytes(8, "little") for name in NAMES for word in rows.vector(own[name]) if word > 2**16]
    dealt = [entry for entry in outcome.transcript.entries if entry.kind in (MaskSent, VectorMasked)]
    assert not [entry for entry in dealt if any(secret in entry.frame for secret in secrets)]
    assert secrets
    sent = [entry.frame for entry in dealt if entry.kind is MaskSent]
    assert len(set(sent)) == len(sent) == 2


@pytest.mark.parametrize(
    ("kind", "change"),
    [(MaskSent, lambda m: MaskSent(m.key[:-1])), (VectorMasked, lambda m: VectorMasked(m.vector[:-1]))],
)
def test_parts_of_a_vector_that_have_another_length_are_refused(kind, change):
    _, own, _ = mixed(rows=20)
    rows, runs = SharedRowsSetup(MIXED, NAMES), local_runs(NAMES, coins=coins("run"))
    roles = {name: train(runs[name], rows, rows.vector(own[name]), coins(name)) for name in NAMES}
    with pytest.raises(ProtocolError, match="wrong length"):
        run_in_memory(roles, faults=[Replace(lambda e: e.kind is kind, change)])
