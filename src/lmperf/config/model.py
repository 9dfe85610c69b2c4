"""`Config`: the pydantic model of the configuration, and what it says of each benchmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from lmperf.benchmark import Implementation
from lmperf.benchmarks import in_order, load, stems
from lmperf.config.axis_values import distinct, grid_of
from lmperf.config.custom import Custom, Name, Variant, require_accepted
from lmperf.config.machine_names import LONGEST, PATTERN, check_slug
from lmperf.config.messages import InvalidValue
from lmperf.errors import meant, shown
from lmperf.own.kinds import STRATEGY
from lmperf.own.recorded import declaration
from lmperf.peers.table import PEERS, installed, peers_of

_FOLDER = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"


def _known_stem(stem: str) -> str:
    if stem not in stems():
        raise ValueError(
            f"is {shown(stem)}, which is not a benchmark; {meant(stem, stems(), 'benchmarks:')}"
        )
    return stem


_Names = Annotated[list[Name], Field(min_length=1), AfterValidator(distinct)]
_Machine = Annotated[
    str,
    AfterValidator(check_slug),
    WithJsonSchema({"type": "string", "pattern": PATTERN, "maxLength": LONGEST}),
]
_Folder = Annotated[str, StringConstraints(pattern=_FOLDER, max_length=LONGEST)]
_Stem = Annotated[str, AfterValidator(_known_stem)]
_Stems = Annotated[list[_Stem], Field(min_length=1), AfterValidator(distinct)]
_Peers = Annotated[list[Literal[tuple(PEERS)]], AfterValidator(distinct)]


class Config(BaseModel):
    """What to measure, as configured.

    Attributes:
        benchmarks: the stems of the benchmarks to measure on the machine at hand; `all`: all.
        benchmarks_by_machine: machine -> stems that replace those of `all`.
        grid: stem -> axis, or `implementation` -> values that replace those of the preset.
        implementations: stem -> name -> custom implementation; an entry stands for `use: entry`.
        subject: stem -> those of its custom implementations that its page is about, in this order;
            all of them where it names none.
        reference: whether the report keeps the parts about lmperf's own code that no custom
            implementation takes part in.
        course: the year of the hand-out whose problems the page of the course has; none: both.
        peers: the implementations of other projects to measure; true: all, false: none.
        report: the folder for evidence and write-ups of all machines.
        site: the folder for the site.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: Literal["auto", "cpu", "gpu", "full", "quick"] = "auto"
    machine: _Machine = "auto"
    retry_failed: bool = False
    benchmarks: Literal["all"] | _Stems = "all"
    benchmarks_by_machine: dict[_Machine, _Stems] = {}
    grid: dict[_Stem, dict[str, Annotated[list[Any], Field(min_length=1)]]] = {}
    implementations: dict[_Stem, dict[Name, Custom]] = {}
    subject: dict[_Stem, _Names] = {}
    reference: bool = False
    course: Literal[2025, 2026] | None = None
    peers: bool | _Peers = True
    report: _Folder = "report"
    site: _Folder = "site"

    @field_validator("grid")
    @classmethod
    def _values_of_axes(cls, grid: dict[str, dict[str, list]]) -> dict[str, dict[str, list]]:
        return {stem: grid_of(stem, axes) for stem, axes in grid.items()}

    @field_validator("implementations")
    @classmethod
    def _are_accepted(cls, given: dict[str, dict[str, Custom]]) -> dict[str, dict[str, Custom]]:
        for stem, customs in given.items():
            if stem not in taking():
                words = meant(stem, taking(), "benchmarks that take one:")
                raise InvalidValue(f"is not a known key; {words}", stem)
            for key, custom in customs.items():
                require_accepted(stem, key, custom)
            names = Counter(v.name for key, custom in customs.items() for v in custom.variants(key))
            if twice := [name for name, count in names.items() if count > 1]:
                raise InvalidValue(f"makes {twice[0]} twice; choose another name", stem)
        return given

    @model_validator(mode="after")
    def _has_one_name_each(self) -> Config:
        names: dict[str, str] = {}
        for stem, customs in self.implementations.items():
            for key, custom in customs.items():
                other = names.setdefault(key, custom.name)
                if other != custom.name:
                    raise InvalidValue(
                        f"is {shown(custom.name)}, and {shown(other)} in another benchmark; an"
                        " implementation must have one name",
                        *("implementations", stem, key, "name"),
                    )
        return self

    @model_validator(mode="after")
    def _has_its_models(self) -> Config:
        models = self._models()
        for stem, customs in self.implementations.items():
            for key, custom in customs.items():
                if custom.model and custom.model not in models:
                    there = _there(custom.model, models, "end_to_end")
                    place = "implementations", stem, key, "model"
                    raise InvalidValue(f"is {shown(custom.model)}; {there}", *place)
        return self

    @model_validator(mode="after")
    def _has_its_subjects(self) -> Config:
        for stem, names in self.subject.items():
            customs = self.implementations.get(stem, {})
            for name in names:
                if name not in customs:
                    words = f"names {shown(name)}; {_there(name, customs, stem)}"
                    raise InvalidValue(words, "subject", stem)
        return self

    @model_validator(mode="after")
    def _has_two_folders(self) -> Config:
        if self.site == self.report:
            words = f"is {shown(self.site)}, which is the folder of the report; it must differ"
            raise InvalidValue(words, "site")
        return self

    def stems(self, preset: str, machine: str, here: bool = True) -> list[str]:
        """Stems of a machine's benchmarks and their kernel tests that have cells in a preset.

        They are in the order in which they are measured: `benchmarks.in_order`.

        here: whether the machine is the one at hand. Only there `benchmarks` counts.
        """
        chosen = self.benchmarks if here else "all"
        if chosen == "all":
            chosen = self.benchmarks_by_machine.get(machine, stems())
        checks = [load(stem).check for stem in chosen]
        wanted = in_order({*chosen, *(check for check in checks if check)})
        return [stem for stem in wanted if load(stem).grids_of(preset)]

    def grid_of(self, stem: str) -> dict[str, list]:
        """Axis -> values, for the axes of a benchmark's grid that the configuration replaces."""
        return self.grid.get(stem, {})

    def peer_versions(self) -> dict[str, str]:
        """The peers (other projects) that are installed and configured: name -> package version."""
        wanted = self.peers if isinstance(self.peers, list) else PEERS if self.peers else ()
        return {name: version for name, version in installed().items() if name in wanted}

    def variants(self, stem: str) -> list[Variant]:
        """The custom implementations of a benchmark."""
        customs = self.implementations.get(stem, {})
        return [variant for key, custom in customs.items() for variant in custom.variants(key)]

    @property
    def names(self) -> dict[str, str]:
        """Name of a custom implementation -> what the report calls it, where that differs."""
        variants = (variant for stem in self.implementations for variant in self.variants(stem))
        return {variant.name: variant.words for variant in variants if variant.words}

    def subjects(self, stem: str) -> list[str]:
        """The custom implementations that the page of a benchmark is about, in their order."""
        keys = [*self.subject.get(stem, self.implementations.get(stem, ()))]
        subjects = (variant for variant in self.variants(stem) if variant.key in keys)
        return [
            variant.name
            for variant in sorted(subjects, key=lambda variant: keys.index(variant.key))
        ]

    def declarations(self) -> dict[str, dict[str, Any]]:
        """The configured custom implementations: "stem.name" -> what `machine.json` records."""
        return {
            f"{stem}.{name}": declaration(implementation)
            for stem in sorted(self.implementations)
            for name, implementation in self.external(stem, {}).items()
        }

    def external(
        self, stem: str, peers: Mapping[str, str] | None = None
    ) -> dict[str, Implementation]:
        """Name -> implementation, for the peers and custom implementations of a benchmark.

        If a peer and a custom implementation share a name, the result has the custom one.

        Args:
            stem: the stem of the benchmark.
            peers: name -> version of the peers; None: the peers installed on this machine.
        """
        versions = self.peer_versions() if peers is None else peers
        return peers_of(stem, versions) | {
            variant.name: replace(variant.implementation, models=self._models_of(stem, variant))
            for variant in self.variants(stem)
        }

    def _models(self) -> dict[str, tuple[str, str, Mapping[str, Any]]]:
        """The custom implementations of `end_to_end`: name -> name, entry and options.

        Those that are compiled are the same models.
        """
        declared = [variant.implementation for variant in self.variants("end_to_end")]
        models = [model for model in declared if not model.compiles]
        return {model.name: (model.name, model.entry, model.options) for model in models}

    def _models_of(self, stem: str, variant: Variant) -> tuple[tuple, ...]:
        """What an implementation may train, as `Implementation.models`."""
        models = self._models()
        if variant.custom.model:
            return (models[variant.custom.model],)
        if load(stem).takes != STRATEGY or not models:
            return ()
        return (*models.values(), ("", "", {}))


def _there(name: str, names: Collection[str], stem: str) -> str:
    """Which custom implementations a benchmark has, for a name that is none of them."""
    if not names:
        return f"implementations has none for {stem}"
    return meant(name, names, f"implementations.{stem} has")


def taking() -> list[str]:
    """The stems of the benchmarks that take custom implementations."""
    return [stem for stem in stems() if load(stem).takes]
