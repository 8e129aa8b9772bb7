"""PMML 4.4 NaiveBayesModel: mixed features and missing values natively.

Counts of PMML are probabilities here (smoothing is in them already), so the threshold for zero counts never applies. A
number is put on the grid and clamped by a derived field before its density or bin is looked up, as in prediction.
"""

from __future__ import annotations

import math
from xml.etree import ElementTree as tree

import numpy as np

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.errors import ConfigError
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, Term

_NAMESPACE = "http://www.dmg.org/PMML-4_4"
_SMALLEST = 1e-300  # PMML has no probability 0 in a Naive Bayes prior


def to_pmml(parameters: Parameters, *, label_kind: str = "text") -> str:
    """Return the model as PMML text."""
    codebook = parameters.codebook
    codebook.require_one_value("PMML's Naive Bayes")
    names = frozenset({*codebook.names, codebook.target})
    label_type = "integer" if label_kind == "integer" else "string"
    root = tree.Element("PMML", {"xmlns": _NAMESPACE, "version": "4.4"})
    header = tree.SubElement(root, "Header", {"description": f"Naive Bayes; codebook {codebook.sha256}"})
    tree.SubElement(header, "Application", {"name": "blindbayes"})
    _dictionary(root, codebook, label_type)
    model = tree.SubElement(root, "NaiveBayesModel", {"functionName": "classification", "threshold": "0"})
    _schema(model, codebook)
    _output(model, codebook, label_type)
    if numbers := [feature for feature in codebook.features if isinstance(feature, Numeric)]:
        transformations = tree.SubElement(model, "LocalTransformations")
        for feature in numbers:
            _on_grid(transformations, feature, names)
    inputs = tree.SubElement(model, "BayesInputs")
    for each in codebook.features:
        _input(inputs, each, parameters.terms[each.name], codebook.classes, names)
    prior = tree.SubElement(model, "BayesOutput", {"fieldName": codebook.target})
    counts = tree.SubElement(prior, "TargetValueCounts")
    for label, log_prior in zip(codebook.classes, parameters.log_prior, strict=True):
        share = _share(log_prior) if math.isfinite(log_prior) else _SMALLEST
        tree.SubElement(counts, "TargetValueCount", {"value": label, "count": repr(share)})
    tree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tree.tostring(root, encoding="unicode") + "\n"


def _dictionary(root: tree.Element, codebook: Codebook, label_type: str) -> None:
    fields = tree.SubElement(root, "DataDictionary", {"numberOfFields": str(len(codebook.features) + 1)})
    target = tree.SubElement(fields, "DataField", {"name": codebook.target, "optype": "categorical", "dataType": label_type})
    for label in codebook.classes:
        tree.SubElement(target, "Value", {"value": label})
    for feature in codebook.features:
        if not isinstance(feature, Categorical):
            tree.SubElement(fields, "DataField", {"name": feature.name, "optype": "continuous", "dataType": "double"})
            continue
        field = tree.SubElement(fields, "DataField", {"name": feature.name, "optype": "categorical", "dataType": "string"})
        for value in feature.values:
            tree.SubElement(field, "Value", {"value": value})
        for marker in codebook.markers(feature):
            tree.SubElement(field, "Value", {"value": marker, "property": "missing"})


def _schema(model: tree.Element, codebook: Codebook) -> None:
    schema = tree.SubElement(model, "MiningSchema")
    tree.SubElement(schema, "MiningField", {"name": codebook.target, "usageType": "target"})
    for feature in codebook.features:
        attributes = {"name": feature.name}
        if isinstance(feature, Categorical) and feature.other is None:
            attributes["invalidValueTreatment"] = "asMissing"
        elif isinstance(feature, Categorical) and feature.other is not None:
            attributes |= {"invalidValueTreatment": "asValue", "invalidValueReplacement": feature.other}
        tree.SubElement(schema, "MiningField", attributes)


def _output(model: tree.Element, codebook: Codebook, label_type: str) -> None:
    output, names = tree.SubElement(model, "Output"), frozenset(codebook.names)
    answer = {"name": _apart("label", names), "feature": "predictedValue"}
    tree.SubElement(output, "OutputField", {**answer, "dataType": label_type, "optype": "categorical"})
    for label in codebook.classes:
        name = _apart(f"P({label})", names | {codebook.target})
        answer = {"name": name, "feature": "probability", "value": label}
        tree.SubElement(output, "OutputField", {**answer, "dataType": "double", "optype": "continuous"})


def _input(inputs: tree.Element, feature: Feature, term: Term, classes: tuple[str, ...], names: frozenset[str]) -> None:
    if isinstance(feature, Categorical) and isinstance(term, Histogram):
        entry = tree.SubElement(inputs, "BayesInput", {"fieldName": feature.name})
        _pairs(entry, feature.values, term, classes)
    elif isinstance(feature, Numeric) and isinstance(term, Histogram):
        entry = tree.SubElement(inputs, "BayesInput", {"fieldName": _grid_name(feature, names)})
        _pairs(entry, tuple(str(cell) for cell in range(feature.size)), term, classes)
    elif isinstance(feature, Numeric) and isinstance(term, Gaussian):
        if not np.isfinite(term.variance).all():
            return  # no class has a value: the feature says nothing
        entry = tree.SubElement(inputs, "BayesInput", {"fieldName": _grid_name(feature, names)})
        stats = tree.SubElement(entry, "TargetValueStats")
        for label, mean, variance in zip(classes, term.mean, term.variance, strict=True):
            one = tree.SubElement(stats, "TargetValueStat", {"value": label})
            tree.SubElement(one, "GaussianDistribution", {"mean": repr(float(mean)), "variance": repr(float(variance))})
    else:
        raise ConfigError(f"feature {feature.name!r} has parameters of another kind")


def _grid_name(feature: Numeric, names: frozenset[str]) -> str:
    return _apart(f"{feature.name} on grid", names)


def _apart(name: str, names: frozenset[str]) -> str:
    while name in names:
        name += "_"
    return name


def _share(log: float) -> float:
    """Return a probability. Raises `ConfigError` if PMML's numbers would round it to 0 and so exclude a class."""
    share = math.exp(log)
    if share < _SMALLEST:
        raise ConfigError("the model has a probability that is too small for PMML: take ONNX, or more smoothing (alpha)")
    return share


def _apply(parent: tree.Element, function: str) -> tree.Element:
    return tree.SubElement(parent, "Apply", {"function": function})


def _constant(parent: tree.Element, value: float) -> None:
    tree.SubElement(parent, "Constant", {"dataType": "double"}).text = repr(float(value))


def _on_grid(parent: tree.Element, feature: Numeric, names: frozenset[str]) -> None:
    """Add a field for min(max(floor(x * scale + 0.5), low), high), in the feature's unit or as a bin."""
    binned = feature.bins is not None
    attributes = {"name": _grid_name(feature, names), "optype": "categorical" if binned else "continuous"}
    field = tree.SubElement(parent, "DerivedField", {**attributes, "dataType": "integer" if binned else "double"})
    present = _apply(field, "if")  # without a third argument, the field stays missing
    tree.SubElement(_apply(present, "isNotMissing"), "FieldRef", {"field": feature.name})
    if binned and not feature.equal_cells:
        _on_cells(present, feature)
        return
    if binned:
        outer = _apply(_apply(present, "floor"), "/")
        scaled = _apply(outer, "*")
        offset = _apply(scaled, "-")
        clamp = _apply(offset, "min")
        _constant(offset, feature.grid_low)
        _constant(scaled, feature.size)
        _constant(outer, feature.width)
    else:
        outer = _apply(present, "/")
        clamp = _apply(outer, "min")
        _constant(outer, feature.scale)
    raised = _apply(clamp, "max")
    _constant(clamp, feature.grid_high)
    _on_point(raised, feature)
    _constant(raised, feature.grid_low)


def _on_cells(parent: tree.Element, feature: Numeric) -> None:
    """Add the number of cells that begin at or below the grid point, by bisection."""
    starts = [start + feature.centre for start in feature.starts]

    def halve(parent: tree.Element, first: int, end: int) -> None:
        if end - first == 1:
            _constant(parent, first)
            return
        half = (first + end) // 2
        choice = _apply(parent, "if")
        less = _apply(choice, "lessThan")
        _on_point(less, feature)
        _constant(less, starts[half])
        halve(choice, first, half)
        halve(choice, half, end)

    halve(parent, 0, len(starts))


def _on_point(parent: tree.Element, feature: Numeric) -> None:
    """floor(x * scale + 0.5)."""
    point = _apply(parent, "floor")
    shifted = _apply(point, "+")
    product = _apply(shifted, "*")
    _constant(shifted, 0.5)
    tree.SubElement(product, "FieldRef", {"field": feature.name})
    _constant(product, feature.scale)


def _pairs(entry: tree.Element, values: tuple[str, ...], term: Histogram, classes: tuple[str, ...]) -> None:
    for at, value in enumerate(values):
        pair = tree.SubElement(entry, "PairCounts", {"value": value})
        counts = tree.SubElement(pair, "TargetValueCounts")
        for position, label in enumerate(classes):
            share = _share(term.log_prob[position, at])
            tree.SubElement(counts, "TargetValueCount", {"value": label, "count": repr(share)})
