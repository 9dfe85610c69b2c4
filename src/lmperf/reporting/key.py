"""The key of a rendering: what a report depends on beside the evidence."""

from __future__ import annotations

import json
from pathlib import Path

import lmperf
from lmperf.config import Config
from lmperf.evidence.closure import digest
from lmperf.evidence.store import file_digest

PACKAGE = Path(lmperf.__file__).parent


def rendering_key(config: Config, root: Path = Path(), package: Path = PACKAGE) -> str:
    """Digest of the code, the templates, the published figures and the configuration.

    All code of the package counts, since what is stale is part of a report, and any module can make
    a row stale. To render once more for a comment takes less than to parse every module each time.

    Args:
        root: of the checkout, with its templates.
        package: the folder of the package.
    """
    parts = []
    for folder, files in ((package, "*.py"), (root / "templates", "*.j2"), (package, "*.csv")):
        paths = sorted(folder.rglob(files))
        parts += [[str(path.relative_to(folder)), file_digest(path)] for path in paths]
    return digest(json.dumps([parts, config.model_dump_json()]))
