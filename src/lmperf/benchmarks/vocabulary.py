"""The benchmark of train steps with the vocabulary of GPT-2, padded to a multiple of 64.

Its head and loss are a larger part of a step than with the 10,000 tokens of the other tables. So
it also shows what the loss in chunks saves and costs.
"""

from __future__ import annotations

from functools import partial

from lmperf.axes import model_axes
from lmperf.benchmark import Axis, Implementation, grid
from lmperf.benchmarks.end_to_end import EndToEnd

_AUTOCAST = "autocast_bfloat16"
_SHARED = ("sdpa_compiled_blocks", "sdpa_graph", "graph")
_STORED = "stored_logits_graph"
_cells = partial(
    grid,
    context_length=1024,
    batch=16,
    dtype=_AUTOCAST,
    vocabulary=50_304,
    implementation=[*_SHARED, _STORED],
)


class Vocabulary(EndToEnd):
    title = "A larger vocabulary"
    section = "end_to_end"
    axes = (*model_axes((_AUTOCAST,)), Axis("vocabulary", int))
    takes = None
    phases = ("train_step",)
    implementations = (
        *(one for one in EndToEnd.implementations if one.name in _SHARED),
        Implementation(
            _STORED,
            "lmperf.transformer.steps:STORED_LOGITS_GRAPH",
            compiles=True,
            needs_cuda=True,
        ),
    )
    grids = {"gpu": [_cells(size="0.13B")], "full": [_cells(size="0.97B")]}
    head = trials = repeated = {}
