"""scalar_product as a task: the paper's own route, for rows and for columns."""

from __future__ import annotations

from importlib import import_module

from blindbayes.study.study import Study
from blindbayes.study.tasks.task import StudyTask
from blindbayes_papers.vaidya2008.params import DESCRIPTION, ScalarProductParams


class ScalarProductTask(StudyTask):
    """The protocol before its study is known: one class runs rows, another columns."""

    name = "scalar_product"
    description = DESCRIPTION
    params = ScalarProductParams
    partitions = ("rows", "columns")
    restricted = True

    @classmethod
    def variant(cls, study: Study) -> type[StudyTask]:
        task: type[StudyTask] = import_module(f"blindbayes_papers.vaidya2008.{study.partition}").TASK
        return task


TASK = ScalarProductTask
