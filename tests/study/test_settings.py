"""Descriptions of settings and options."""

from __future__ import annotations

import msgspec

from blindbayes.study.settings import option_lines
from blindbayes.study.tasks import registry as tasks


def test_no_option_is_described_twice() -> None:
    for protocol in tasks.own_names():
        params = tasks.task_class(protocol).params
        assert len(msgspec.structs.fields(params)) == len(option_lines(params))
