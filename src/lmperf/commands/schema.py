"""`lmperf schema`: the JSON schema of the configuration, for editors."""

from __future__ import annotations

import sys

import click

from lmperf.config import json_schema


@click.command(short_help="Print the JSON schema of the configuration.")
def schema():
    """Print the JSON schema of the configuration, for editors.

    \b
    Example:
      lmperf schema > config/schema.json
    """
    sys.stdout.write(json_schema())
