"""Compile the kernels: all sets for a wheel, the fastest one for an editable install (`make` adds the others for tests).

Without a compiler the package is pure Python.
"""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = "src/blindbayes/crypto/kernels"


class KernelHook(BuildHookInterface[Any]):
    """The library lands beside its sources, in the tree and in the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        spec = importlib.util.spec_from_file_location("kernels_build", Path(self.root) / KERNELS / "build.py")
        assert spec is not None and spec.loader is not None  # noqa: PT018
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)  # by its path: the package itself needs more than a build has
        try:
            chosen = build.sets() if version == "standard" else build.quick_sets()
            if version != "standard" and build.is_current(chosen=chosen):
                return
            made = build.build(chosen=chosen)
        except build.Unbuildable as why:
            build.LIBRARY.unlink(missing_ok=True)
            self.app.display_warning(f"blindbayes: kernels are left out, numpy does the work: {why}")
            return
        self.app.display_info(f"blindbayes: kernels for {', '.join(made)}")
        if version == "standard":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data.update(pure_python=False, tag=f"py3-none-{platform}")
            build_data["force_include"][str(build.LIBRARY)] = f"blindbayes/crypto/kernels/{build.LIBRARY.name}"
