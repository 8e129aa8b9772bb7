"""The model in other tools' formats: ONNX and PMML. The JSON model file stays the format of record."""

from blindbayes.naive_bayes.export.onnx import to_onnx
from blindbayes.naive_bayes.export.pmml import to_pmml

__all__ = ["to_onnx", "to_pmml"]
