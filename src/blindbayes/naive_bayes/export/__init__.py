"""The model in other tools' formats: ONNX, PMML and SQL. The JSON model file stays the format of record."""

from blindbayes.naive_bayes.export.onnx import to_onnx
from blindbayes.naive_bayes.export.pmml import to_pmml
from blindbayes.naive_bayes.export.sql import to_sql

__all__ = ["to_onnx", "to_pmml", "to_sql"]
