"""Copy the workflow into a wheel, as data of the package `lmperf.workflow`.

The Snakefile, the rules and the templates stay at the top of the checkout, where people look for
them. An editable install reads them there.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
WORKFLOW = (
    *("Snakefile", "config/schema.json", "rules/**/*.*", "templates/**/*.*", "profiles/**/*.*"),
    ".github/workflows/report.yml",
)


class BuildWithWorkflow(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:
            for source, target in self._workflow().items():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode=True):
        outputs = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, *map(str, self._workflow().values())]

    def _workflow(self):
        folder = Path(self.build_lib) / "lmperf/workflow"
        found = {pattern: sorted(ROOT.glob(pattern)) for pattern in WORKFLOW}
        if lacking := [pattern for pattern, paths in found.items() if not paths]:
            raise FileNotFoundError(f"{', '.join(lacking)}: MANIFEST.in must include it")
        sources = [path for paths in found.values() for path in paths if path.is_file()]
        return {path: folder / path.relative_to(ROOT) for path in sources}


setup(cmdclass={"build_py": BuildWithWorkflow})
