"""A custom implementation in a configuration, and the implementations that it stands for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from lmperf.benchmark import STRICT, Implementation
from lmperf.benchmarks import load
from lmperf.config.axis_values import distinct
from lmperf.config.machine_names import LONGEST
from lmperf.config.messages import InvalidValue
from lmperf.errors import meant, shown
from lmperf.own.kinds import MODEL, STRATEGY

_NAME = r"^[a-z][a-z0-9_]*$"
_ENTRY = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"


def _require_no_path(value: Any) -> Any:
    """Return the entry of an implementation unless it names a file, or the method of a class.

    Raises:
        ValueError: it does; the message says which entry is meant.
    """
    if isinstance(value, str):
        entry = value.removeprefix("./").replace(".py:", ":").replace("/", ".")
        entry = entry.removesuffix(".apply")
        if entry != value and re.fullmatch(_ENTRY, entry):
            raise ValueError(f"is {shown(value)}; write {entry}")
    return value


_Words = Annotated[str, StringConstraints(pattern=r"^[^\n\r]*$", max_length=80)]
Name = Annotated[str, StringConstraints(pattern=_NAME, max_length=LONGEST)]
_Entry = Annotated[
    str, StringConstraints(pattern=_ENTRY, max_length=255), BeforeValidator(_require_no_path)
]
_Option = bool | int | float | str
_Options = Annotated[list[_Option], Field(min_length=1), AfterValidator(distinct)]


class Variant(NamedTuple):
    """One of the implementations that a custom one stands for.

    Attributes:
        key: the key of the custom one, `custom`.
        words: what the report calls it; empty: its name.
        implementation: without the models that it trains.
    """

    key: str
    custom: Custom
    words: str
    implementation: Implementation

    @property
    def name(self) -> str:
        return self.implementation.name


class Custom(BaseModel):
    """A custom implementation.

    Attributes:
        use: its function or class.
        tolerance: the rounding that it declares.
        name: what the report calls it; empty: its key.
        compiled: whether a model is measured a second time, compiled, as `<name>_compiled`.
        model: of a strategy or an optimizer, the custom model of `end_to_end` that it trains;
            None: a strategy trains the first one that is a model class, if there is one.

    Other keys are keyword arguments of the function or class: a value, or a list of values, each of
    which makes an implementation.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    use: _Entry
    tolerance: str = STRICT
    name: _Words = ""
    compiled: bool = False
    model: Name | None = None

    __pydantic_extra__: dict[Name, _Option | _Options] = Field(init=False)

    @model_validator(mode="before")
    @classmethod
    def _of_entry(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            for key in given.keys() - cls.model_fields.keys():
                if (words := meant(key, cls.model_fields)).startswith("did you mean"):
                    raise InvalidValue(f"is not a known key; {words}", key)
        return {"use": given} if isinstance(given, str) else given

    def variants(self, key: str) -> list[Variant]:
        """The implementations: their names are `key` with values of lists and `compiled`."""
        given = self.__pydantic_extra__ or {}
        lists = {
            name: value if isinstance(value, list) else [value] for name, value in given.items()
        }
        ways = (False, True) if self.compiled else (False,)
        variants = []
        for *values, compiled in itertools.product(*lists.values(), ways):
            options = dict(zip(lists, values, strict=True))
            parts = [str(value) for name, value in options.items() if isinstance(given[name], list)]
            parts += ["compiled"] * compiled
            name = re.sub(r"[^a-z0-9]+", "_", "_".join([key, *parts]).lower()).rstrip("_")
            words = ", ".join([self.name or key, *parts]) if self.name or compiled else ""
            implementation = Implementation(
                name, self.use, options, self.tolerance, compiled, origin="custom"
            )
            variants.append(Variant(key, self, words, implementation))
        return variants


def require_accepted(stem: str, key: str, custom: Custom) -> None:
    """Raise InvalidValue unless a benchmark accepts what a custom implementation declares."""
    tolerances, takes = load(stem).known_tolerances(), load(stem).takes
    if custom.tolerance not in tolerances:
        words = f"is {shown(custom.tolerance)}; it must be {' or '.join(tolerances)}"
        raise InvalidValue(words, stem, key, "tolerance")
    if custom.compiled and takes != MODEL:
        words = f"is true; {stem} takes no model, and only a model is compiled"
        raise InvalidValue(words, stem, key, "compiled")
    if custom.model and takes not in (MODEL, STRATEGY):
        words = f"is {shown(custom.model)}; only a strategy or an optimizer trains one"
        raise InvalidValue(words, stem, key, "model")
