"""The JSON schema of the configuration, for editors.

python -m lmperf.config.schema > config/schema.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from lmperf.benchmark import Axis
from lmperf.benchmarks import stems
from lmperf.config.axis_values import axes_of, type_of
from lmperf.config.model import Config, taking


def json_schema() -> str:
    """Return the JSON schema of the configuration for editors, the text of `config/schema.json`."""
    schema = Config.model_json_schema()
    entry = schema["$defs"]["Custom"]["properties"]["use"]
    custom = {"additionalProperties": {"anyOf": [entry, {"$ref": "#/$defs/Custom"}]}}
    by_stem = {
        "grid": {
            stem: _object({name: _schema_of(axis) for name, axis in axes_of(stem).items()})
            for stem in stems()
        },
        "implementations": {stem: {"type": "object", **custom} for stem in taking()},
    }
    schema["properties"] |= {key: _object(schemas) for key, schemas in by_stem.items()}
    return json.dumps(schema, indent=2) + "\n"


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _schema_of(axis: Axis) -> dict[str, Any]:
    """Return the schema of the list of values of an axis."""
    value = type_of(axis).json_schema()
    if axis.choices:
        value["enum"] = [*axis.choices, *axis.aliases]
    return {"type": "array", "items": value, "minItems": 1, "uniqueItems": True}


if __name__ == "__main__":
    sys.stdout.write(json_schema())
