"""Compile the kernels: all sets for a wheel, the fastest one for an editable install (`make` adds the others for tests).

Without a compiler the package is pure Python. A wheel carries a bill of materials (CycloneDX, PEP 770).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = "src/blindbayes/crypto/kernels"


class KernelHook(BuildHookInterface[Any]):
    """Put the library beside its sources, in the tree and in the wheel."""

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
            made = []
        if version != "standard":
            return
        if made:
            self.app.display_info(f"blindbayes: kernels for {', '.join(made)}")
            build_data.update(pure_python=False, tag=f"py3-none-{platform_tag(build.target_machine())}")
            build_data["force_include"][str(build.LIBRARY)] = f"blindbayes/crypto/kernels/{build.LIBRARY.name}"
        sources = [Path(self.root) / KERNELS / name for name in build.SOURCES] if made else []
        bill = Path(tempfile.mkdtemp()) / "blindbayes.cdx.json"
        bill.write_text(json.dumps(bill_of_materials(self.metadata.version, sources), indent=1) + "\n", encoding="utf-8")
        build_data["sbom_files"].append(str(bill))


def platform_tag(machine: str) -> str:
    """Return the platform that the compiler builds for; auditwheel and delocate replace it by what an index accepts."""
    here = sysconfig.get_platform()
    if here.startswith("linux-"):
        here = f"linux-{machine}"  # a cross compiler decides, not this machine
    return re.sub(r"[-.]", "_", here)


def bill_of_materials(version: str, sources: list[Path]) -> dict[str, Any]:
    """Return a CycloneDX document without times or serial numbers, so that two builds are equal.

    The wheel contains no third-party code: the components are the sources that the library was compiled from.
    """
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": "blindbayes",
                "name": "blindbayes",
                "version": version,
                "purl": f"pkg:pypi/blindbayes@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [
            {
                "type": "file",
                "bom-ref": path.name,
                "name": f"blindbayes/crypto/kernels/{path.name}",
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
            }
            for path in sources
        ],
    }
