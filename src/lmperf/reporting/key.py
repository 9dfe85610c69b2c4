"""The key of a rendering: a digest of all inputs of a report other than the evidence."""

from __future__ import annotations

import json
from pathlib import Path

import lmperf
from lmperf.config import Config
from lmperf.evidence.project import GENERAL_NOTES
from lmperf.evidence.store import file_digest
from lmperf.evidence.syntax import digest
from lmperf.workflow import templates_of

PACKAGE = Path(lmperf.__file__).parent
# Folder of the author's notes on one machine, below that machine.
NOTES = "notes"


def rendering_key(config: Config, root: Path = Path(), package: Path = PACKAGE) -> str:
    """Digest of code, templates, notes for every machine, published figures and configuration.

    All code of the package counts: a report names stale rows, and any module can make a row stale.
    Rendering again after a changed comment costs less than parsing every module each time.

    Args:
        root: the checkout or the repository, with its notes.
        package: the folder of the package.

    Keys of the configuration that only choose what is measured again do not count.
    """
    measuring_only = {"retry_failed", "remeasure"}
    parts, templates = [], templates_of(root)
    for folder, files in (
        *((package, "*.py"), (package, "*.csv")),
        *((templates, "*.j2"), (root / GENERAL_NOTES, "*.md")),
    ):
        paths = sorted(folder.rglob(files))
        parts += [[str(path.relative_to(folder)), file_digest(path)] for path in paths]
    return digest(json.dumps([parts, config.model_dump_json(exclude=measuring_only)]))
