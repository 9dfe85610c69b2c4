"""Render pickled evidence to Markdown and print it as JSON: file name -> text.

    python render_evidence.py EVIDENCE.pickle TEMPLATES

`same_tables.py` runs this script with the code of two Git revisions, so it calls only functions
that older revisions also have.
"""

import json
import pickle
import sys
from pathlib import Path

from lmperf.reporting import pages
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.formats import FORMATS
from lmperf.reporting.verdicts import verdict_tables


def main(pickled: Path, templates: Path) -> None:
    known = pickle.loads(pickled.read_bytes())
    made = {name: MachineEvidence(**arguments) for name, arguments in known.items()}
    files = {}
    for name, evidence in made.items():
        sections = pages.composed(evidence, templates, drawn=False)
        for file, text in pages.machine_files(evidence, sections, templates).items():
            files[f"{name}/{file}"] = text
        for stem in evidence.present():
            tables = verdict_tables(evidence, stem, None)
            files[f"{name}/verdicts of {stem}"] = "\n\n".join(map(FORMATS["markdown"], tables))
    several = list(made.values())
    if len(several) > 1:
        sections = pages.composed(several[0], templates, drawn=False)
        here = several[0].machine
        for file, text in pages.overview_files(several, here, sections, templates).items():
            files[f"overview/{file}"] = text
    json.dump(files, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
