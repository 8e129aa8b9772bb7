"""ONNX: the same arithmetic as `Parameters`, as a graph.

One input per feature, shaped (rows, 1): text for a categorical feature (a text that the codebook does not list counts as
missing, or as the feature's `other`, as in prediction), a double for a numeric one (NaN is missing; a number is put on the grid
and clamped). Text is shaped (rows, words): doubles that count its words. Outputs:
`label`, shaped (rows,), and `probabilities`, shaped (rows, classes), in the codebook's order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blindbayes._lazy import need
from blindbayes.codebook import Categorical, Feature, Numeric
from blindbayes.errors import ConfigError
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, WordTable

_OPSET = 18
_ML_OPSET = 3


def to_onnx(parameters: Parameters, *, label_kind: str = "text") -> Any:
    """Return the model as an `onnx.ModelProto`. Needs the extra `onnx`."""
    onnx = need("onnx")
    TensorProto, checker, helper = onnx.TensorProto, onnx.checker, onnx.helper
    codebook = parameters.codebook
    if taken := {"label", "probabilities"} & set(codebook.names):
        raise ConfigError(
            f"feature {min(taken)!r} is called like an output of the ONNX model: rename the column, and train again"
        )
    graph = _Graph(helper, TensorProto, codebook.names)
    scores = graph.constant("log_prior", np.where(np.isinf(parameters.log_prior), -1e300, parameters.log_prior)[np.newaxis, :])
    inputs = []
    for at, feature in enumerate(codebook.features):
        kind = TensorProto.STRING if isinstance(feature, Categorical) else TensorProto.DOUBLE
        own = parameters.terms[feature.name]
        wide = own.log_prob.shape[1] if isinstance(own, WordTable) else 1
        inputs.append(helper.make_tensor_value_info(feature.name, kind, ["rows", wide]))
        if isinstance(own, WordTable):
            term = _words_term(graph, own, feature.name, at)
        else:
            source = graph.node("Reshape", [feature.name, graph.constant(f"flat_{at}", np.array([-1]))], f"input_{at}")
            term = _feature_term(graph, feature, own, codebook.markers(feature), source, at)
        scores = graph.node("Add", [scores, term], f"score_{at}")
    best = graph.node("ArgMax", [scores], "best", axis=1, keepdims=0, select_last_index=0)
    whole = label_kind == "integer"
    labels: Any = np.array([int(label) for label in codebook.classes]) if whole else list(codebook.classes)
    graph.output("Gather", [graph.constant("labels", labels), best], "label", axis=0)
    top = graph.node("ReduceMax", [scores, graph.constant("class_axis", np.array([1]))], "top", keepdims=1)
    shares = graph.node("Exp", [graph.node("Sub", [scores, top], "shifted")], "shares")
    total = graph.node("ReduceSum", [shares, graph.constant("sum_axis", np.array([1]))], "total", keepdims=1)
    graph.output("Div", [shares, total], "probabilities")
    label_type = TensorProto.INT64 if whole else TensorProto.STRING
    outputs = [
        helper.make_tensor_value_info("label", label_type, ["rows"]),
        helper.make_tensor_value_info("probabilities", TensorProto.DOUBLE, ["rows", len(codebook.classes)]),
    ]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "blindbayes", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)],
        producer_name="blindbayes",
    )
    model.ir_version = 9
    helper.set_model_props(model, {"codebook_sha256": codebook.sha256})
    checker.check_model(model)
    return model


class _Graph:
    """Nodes and constants under names of their own: ONNX takes one that is called like an input for that input's default."""

    def __init__(self, helper: Any, types: Any, inputs: tuple[str, ...]) -> None:
        self.helper, self.types = helper, types
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._own = "own:"
        while any(name.startswith(self._own) for name in inputs):
            self._own += ":"

    def node(self, kind: str, inputs: list[str], name: str, domain: str = "", **attributes: Any) -> str:
        return self.output(kind, inputs, self._own + name, domain, **attributes)

    def output(self, kind: str, inputs: list[str], name: str, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(self.helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def constant(self, name: str, value: Any) -> str:
        name = self._own + name
        if isinstance(value, list):
            encoded = [text.encode() for text in value]
            self.constants.append(self.helper.make_tensor(name, self.types.STRING, [len(encoded)], encoded))
            return name
        array = np.asarray(value)
        kind = self.types.DOUBLE if array.dtype.kind == "f" else self.types.INT64
        self.constants.append(self.helper.make_tensor(name, kind, array.shape, array.ravel().tolist()))
        return name


def _feature_term(
    graph: _Graph, feature: Feature, term: Histogram | Gaussian, markers: tuple[str, ...], source: str, at: int
) -> str:
    """Add the logarithm of P(value | class) of one feature, shaped (rows, classes)."""
    if isinstance(feature, Categorical):
        codes = graph.node(
            "LabelEncoder",
            [source],
            f"code_{at}",
            domain="ai.onnx.ml",
            keys_strings=[*feature.values, *markers],
            values_int64s=[*range(feature.size), *[feature.size] * len(markers)],
            default_int64=feature.size if feature.other is None else feature.values.index(feature.other),
        )
        return _look_up(graph, term, codes, at)
    if not isinstance(feature, Numeric):
        raise ConfigError(f"feature {feature.name!r} has no form in ONNX")
    missing = graph.node("IsNaN", [source], f"missing_{at}")
    present = graph.node("Where", [missing, graph.constant(f"filler_{at}", np.array(0.0)), source], f"present_{at}")
    scaled = graph.node("Mul", [present, graph.constant(f"scale_{at}", np.array(feature.scale))], f"scaled_{at}")
    shifted = graph.node("Add", [scaled, graph.constant(f"half_{at}", np.array(0.5))], f"shifted_{at}")
    point = graph.node("Floor", [shifted], f"point_{at}")
    ends = {"low": feature.grid_low, "high": feature.grid_high}
    low, high = (graph.constant(f"{name}_{at}", np.array(float(end))) for name, end in ends.items())
    clamped = graph.node("Min", [graph.node("Max", [point, low], f"above_{at}"), high], f"clamped_{at}")
    if isinstance(term, Histogram):
        whole = graph.node("Cast", [clamped], f"whole_{at}", to=graph.types.INT64)
        cell = _cell(graph, feature, whole, at)
        codes = graph.node("Where", [missing, graph.constant(f"none_{at}", np.array(feature.size)), cell], f"code_{at}")
        return _look_up(graph, term, codes, at)
    value = graph.node("Div", [clamped, graph.constant(f"unit_{at}", np.array(feature.scale))], f"value_{at}")
    column = graph.node("Unsqueeze", [value, graph.constant(f"axis_{at}", np.array([1]))], f"column_{at}")
    known = np.isfinite(term.variance)
    variance = np.where(known, term.variance, 1.0)
    distance = graph.node("Sub", [column, graph.constant(f"mean_{at}", term.mean[np.newaxis, :])], f"distance_{at}")
    square = graph.node("Mul", [distance, distance], f"square_{at}")
    weight = graph.constant(f"weight_{at}", np.where(known, -0.5 / variance, 0.0)[np.newaxis, :])
    base = graph.constant(f"base_{at}", np.where(known, -0.5 * np.log(2 * np.pi * variance), 0.0)[np.newaxis, :])
    density = graph.node("Add", [graph.node("Mul", [square, weight], f"weighted_{at}"), base], f"density_{at}")
    wide = graph.node("Unsqueeze", [missing, graph.constant(f"wide_{at}", np.array([1]))], f"absent_{at}")
    return graph.node("Where", [wide, graph.constant(f"zero_{at}", np.array(0.0)), density], f"term_{at}")


def _words_term(graph: _Graph, term: WordTable, source: str, at: int) -> str:
    """Add the scores of each document's words, shaped (rows, classes); with `once` a word is present or not."""
    log, base = term.log_prob, np.zeros(len(term.log_prob))
    if term.once:
        there = graph.node("Greater", [source, graph.constant(f"none_{at}", np.array(0.0))], f"there_{at}")
        source = graph.node("Cast", [there], f"once_{at}", to=graph.types.DOUBLE)
        absent = np.log1p(-np.exp(log))
        log, base = log - absent, absent.sum(axis=1)
    spoken = graph.node("MatMul", [source, graph.constant(f"words_{at}", log.T)], f"spoken_{at}")
    return graph.node("Add", [spoken, graph.constant(f"base_{at}", base[np.newaxis, :])], f"term_{at}")


def _cell(graph: _Graph, feature: Numeric, point: str, at: int) -> str:
    """Add the histogram cell of a grid point: by division, or by how many cells begin at or below it."""
    if feature.equal_cells:
        offset = graph.node("Sub", [point, graph.constant(f"first_{at}", np.array(feature.grid_low))], f"offset_{at}")
        spread = graph.node("Mul", [offset, graph.constant(f"bins_{at}", np.array(feature.size))], f"spread_{at}")
        return graph.node("Div", [spread, graph.constant(f"width_{at}", np.array(feature.width))], f"cell_{at}")
    starts = np.array([start + feature.centre for start in feature.starts[1:]])
    column = graph.node("Unsqueeze", [point, graph.constant(f"cell_axis_{at}", np.array([1]))], f"point_column_{at}")
    below = graph.node("GreaterOrEqual", [column, graph.constant(f"starts_{at}", starts[np.newaxis, :])], f"begun_{at}")
    whole = graph.node("Cast", [below], f"begun_whole_{at}", to=graph.types.INT64)
    return graph.node("ReduceSum", [whole, graph.constant(f"sum_axis_{at}", np.array([1]))], f"cell_{at}", keepdims=0)


def _look_up(graph: _Graph, term: Histogram | Gaussian, codes: str, at: int) -> str:
    if not isinstance(term, Histogram):
        raise ConfigError("a categorical feature has a table of log-probabilities")
    table = np.vstack([term.log_prob.T, np.zeros(term.log_prob.shape[0])])  # the last row answers a missing value
    return graph.node("Gather", [graph.constant(f"table_{at}", table), codes], f"term_{at}", axis=0)
