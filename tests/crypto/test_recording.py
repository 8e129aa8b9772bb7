"""A recorded circuit computes what the plain one does, in layers."""

import numpy as np
import pytest

from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.garbling import Plain
from blindbayes.crypto.garbling.recording import Recorder
from blindbayes.crypto.logarithm import ln
from blindbayes.errors import LocalProtocolError

LANES = 50


def run(recording, inputs):
    values = [None] * recording.size
    for (place, shape), bits in zip(recording.inputs, inputs, strict=True):
        assert bits.shape == shape
        values[place] = bits
    for layer in recording.layers:
        for operation in (*layer.local, *layer.gates):
            values[operation.place] = operation.run(values)
    return [values[place] for place in recording.outputs]


def at_least_one(g, number):
    return np.concatenate([g.not_(c.zeros(number, 1)), number[1:]])


CIRCUITS = {
    "add": (lambda g, a, b: c.add(g, a, b), (17, 17)),
    "subtract": (lambda g, a, b: c.subtract(g, a, b, bits=33), (33, 20)),
    "multiply": (c.multiply, (12, 9)),
    "square": (c.square, (13,)),
    "negate": (lambda g, a: c.negate_if(g, a[0], a), (13,)),
    "less": (lambda g, a, b: c.is_less(g, a, b)[None], (13, 13)),
    "signed less": (lambda g, a, b: c.is_less(g, a, b, signed=True)[None], (2, 2)),
    "sign of many": (lambda g, *numbers: c.sign_of_many(g, numbers)[None], (35, 35, 35)),
    "divide": (lambda g, a, b: c.divide(g, a, at_least_one(g, b), 21), (20, 12)),
    "ln": (lambda g, a: ln(g, at_least_one(g, a), 24), (24,)),
    "winner": (lambda g, a: c.argmax_by_pairs(g, a, 5), (10,)),
    "turns": (lambda g, *scores: c.argmax_by_turns(g, scores), (9, 9, 9)),
}


@pytest.mark.parametrize("name", CIRCUITS)
def test_a_recording_computes_what_the_plain_circuit_does(name):
    circuit, widths = CIRCUITS[name]
    rng = np.random.default_rng(5)
    inputs = [rng.integers(0, 2, (bits, LANES)).astype(np.uint8) for bits in widths]
    expected = circuit(Plain(), *inputs)
    recorder = Recorder()
    recording = recorder.finish([circuit(recorder, *(recorder.inputs(bits, LANES) for bits in widths))])
    assert np.array_equal(run(recording, inputs)[0], expected)
    assert recording.and_count == sum(
        np.broadcast(*(np.empty(shape) for shape in shapes)).size for shapes in gate_shapes(recording, inputs)
    )


def gate_shapes(recording, inputs):
    values = [None] * recording.size
    for (place, _), bits in zip(recording.inputs, inputs, strict=True):
        values[place] = bits
    for layer in recording.layers:
        for operation in (*layer.local, *layer.gates):
            values[operation.place] = operation.run(values)
        yield from ([values[place].shape for place in gate.arguments] for gate in layer.gates)


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8, 33, 64])
def test_carries_take_a_logarithm_of_layers(bits):
    """The plain carry chain takes a layer per bit."""
    depths = {}
    for every in (True, False):
        recorder = Recorder()
        left, right, carry = recorder.inputs(bits, 3), recorder.inputs(bits, 3), recorder.inputs(3)
        depths[every] = recorder.finish([recorder.carries(left, right, carry, every=every)]).depth
    assert depths[True] == depths[False] == 1 + (bits - 1).bit_length()


def test_gates_of_one_depth_share_a_layer_whatever_the_order():
    recorder = Recorder()
    a, b = recorder.inputs(4), recorder.inputs(4)
    deep = recorder.and_(recorder.and_(a, b), a ^ b)
    late = recorder.and_(b, recorder.not_(a))  # written last, ready first
    recording = recorder.finish([deep, late])
    assert [len(layer.gates) for layer in recording.layers] == [2, 1, 0]


def test_bits_of_a_recorded_wire_cannot_be_read():
    wire = Recorder().inputs(3, 2)
    with pytest.raises(LocalProtocolError):
        np.asarray(wire)
    with pytest.raises(TypeError):
        np.add(wire, wire)
    with pytest.raises(LocalProtocolError):
        np.zeros((3, 2), dtype=np.uint8)[:] = wire
