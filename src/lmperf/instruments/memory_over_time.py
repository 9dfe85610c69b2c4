"""Records memory over time by category: how many bytes are alive at each moment of a call.

A `Recorder` is `LiveTensors` that keeps the life of each storage, from allocation to release, and
assigns a category to it. On CUDA, memory that operators allocate internally (workspaces) is the
difference from the allocator's peak.
Categories: parameters, gradients, optimizer state; activations (allocated in a forward pass and
alive after it); inputs (including the model's buffers); temporary (everything else).
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from lmperf.measuring.live_tensors import LiveTensors

PARAMETERS, GRADIENTS, OPTIMIZER = "parameters", "gradients", "optimizer"
ACTIVATIONS, TEMPORARY, INPUTS = "activations", "temporary", "inputs"
CATEGORIES = (PARAMETERS, OPTIMIZER, INPUTS, GRADIENTS, ACTIVATIONS, TEMPORARY)

_PACKAGE = Path(__file__).parents[1]
# Files that only run the model: the search for the line that made a tensor skips their frames.
_RUNNERS = (
    "benchmarks/",
    "measuring/",
    "instruments/memory_over_time.py",
    "transformer/model_problem.py",
)


@dataclass
class Block:
    """One storage: its size in bytes, its lifetime, and the line of code that allocated it."""

    size: int
    born: int
    category: str
    phase: str
    shape: tuple[int, ...]
    dtype: str
    frame: str
    died: int | None = None


class Recorder(LiveTensors):
    """Tracks storages while it is active.

    A moment is the number of allocations and releases so far.

    code: the folder of the model's code, whose lines make tensors.
    """

    def __init__(self, code: Path = _PACKAGE) -> None:
        super().__init__()
        self._code = code
        self.now = 0
        self.phase = ""
        self.phases: list[tuple[int, str]] = []
        self.blocks: list[Block] = []
        self._alive: dict[int, Block] = {}

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.phases.append((self.now, phase))

    def add(self, tensor: Tensor, category: str) -> None:
        """Track an existing tensor, or change the category of a tracked one."""
        self._alive[self.count(tensor)].category = category

    def born(self, address: int, tensor: Tensor) -> None:
        self.now += 1
        name = str(tensor.dtype).removeprefix("torch.")
        # What existed before the parts was made elsewhere.
        size, frame = tensor.untyped_storage().nbytes(), _frame(self._code) if self.phase else ""
        block = Block(size, self.now, TEMPORARY, self.phase, tuple(tensor.shape), name, frame)
        self.blocks.append(block)
        self._alive[address] = block

    def died(self, address: int) -> None:
        self.now += 1
        self._alive.pop(address).died = self.now

    def keep_activations(self) -> None:
        """Make activations of the temporary tensors that are alive."""
        for block in self._alive.values():
            if block.category == TEMPORARY:
                block.category = ACTIVATIONS


def _frame(code: Path) -> str:
    """The innermost frame of this package or below `code`: `file:line function`, or "autograd"."""
    for frame in reversed(traceback.extract_stack(limit=40)):
        path = Path(frame.filename)
        folder = next((one for one in (_PACKAGE, code) if path.is_relative_to(one)), None)
        if folder is None:
            continue
        name = path.relative_to(folder).as_posix()
        if not name.startswith(_RUNNERS):
            return f"{name}:{frame.lineno} {frame.name}"
    return "autograd"


def record(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    inputs: list[Tensor],
    parts: list[tuple[str, Callable[[], object]]],
) -> Recorder:
    """Run the named parts in order under a Recorder that tracks the model and its optimizer.

    The results of the parts stay alive until the end. A tensor becomes a gradient when it is
    accumulated into a parameter, and an activation if it is alive when the forward part ends.
    """
    recorder = Recorder(Path(inspect.getfile(type(model))).parent)
    for parameter in model.parameters():
        recorder.add(parameter, PARAMETERS)
    if optimizer is not None:
        for leaf in tree_iter(dict(optimizer.state)):
            if isinstance(leaf, Tensor):
                recorder.add(leaf, OPTIMIZER)
    for tensor in (*inputs, *model.buffers()):
        recorder.add(tensor, INPUTS)
    hooks = [
        parameter.register_post_accumulate_grad_hook(lambda p: recorder.add(p.grad, GRADIENTS))
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    results = []
    with recorder:
        for name, run in parts:
            recorder.enter(name)
            results.append(run())
            if name == "forward":
                recorder.keep_activations()
    recorder.enter("end")
    for hook in hooks:
        hook.remove()
    return recorder


def kept_for_backward(module: nn.Module, run: Callable[[], object]) -> list[tuple[str, int]]:
    """(`dtype[shape]`, bytes) of what a module keeps for its backward pass, the largest first.

    A storage counts once; parameters, which exist anyhow, do not. run: calls the model that has
    the module.
    """
    there = {one.untyped_storage()._cdata for one in module.parameters()}
    kept: dict[int, tuple[str, int]] = {}
    hold: list[Tensor] = []  # so that no address is used again

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in there:
            name = f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]".removeprefix("torch.")
            kept.setdefault(storage._cdata, (name, storage.nbytes()))
            hold.append(tensor)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    before = module.register_forward_pre_hook(lambda *_: hooks.__enter__())
    after = module.register_forward_hook(lambda *_: hooks.__exit__(), always_call=True)
    try:
        run()
    finally:
        before.remove()
        after.remove()
    return sorted(kept.values(), key=lambda one: -one[1])


def curve(recorder: Recorder) -> list[tuple[int, dict[str, int]]]:
    """(moment, bytes by category) after every allocation and release, in order."""
    changes = []
    for block in recorder.blocks:
        changes.append((block.born, block.category, block.size))
        if block.died is not None:
            changes.append((block.died, block.category, -block.size))
    level = dict.fromkeys(CATEGORIES, 0)
    points = []
    for moment, category, size in sorted(changes):
        level[category] += size
        points.append((moment, dict(level)))
    return points


def thinned(
    points: list[tuple[int, dict[str, int]]], most: int
) -> list[tuple[int, dict[str, int]]]:
    """At most `most` points: of each interval the highest point, so that the peak is kept."""
    stride = max(1, -(-len(points) // most))
    parts = (points[i : i + stride] for i in range(0, len(points), stride))
    return [max(part, key=lambda point: sum(point[1].values())) for part in parts]


def alive_at(recorder: Recorder, moment: int) -> list[Block]:
    """The blocks that are alive at a moment, the largest first."""
    there = [b for b in recorder.blocks if b.born <= moment and (b.died is None or b.died > moment)]
    return sorted(there, key=lambda block: -block.size)
