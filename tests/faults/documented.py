"""The command lines of documentation pages."""

import re

PROGRAMS = ("lmperf", "make", "snakemake", "pip", "python", "nsys")


def commands(text: str) -> list[str]:
    """The command lines in the indented blocks of a page, without the path of the environment."""
    lines = re.findall(r"^ {4,}(.*\S)$", text.replace("\\\n", " "), re.MULTILINE)
    parts = (part.removeprefix(".venv/bin/") for line in lines for part in line.split(" && "))
    return [part for part in parts if part.partition(" ")[0] in PROGRAMS]
