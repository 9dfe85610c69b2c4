"""`lmperf fit`: what a model needs on how many GPUs of which kind, in closed form."""

from __future__ import annotations

import click

from lmperf.commands.options import Choice
from lmperf.distributed.fit import FORMS, MOST_GPUS, memory_gib
from lmperf.errors import UserError

FORMATS = ("text", "markdown", "csv", "json")


@click.command(short_help="Show how many GPUs a model needs to be trained.")
@click.option("--size", required=True, help="A model size or its alias: 3.4B, 10B, large.")
@click.option("--gpus", type=click.IntRange(1, MOST_GPUS), default=1, show_default=True)
@click.option(
    "--device",
    metavar="NAME|GIB",
    help="Name of a GPU, or its memory in GiB; by default this machine's.",
)
@click.option("--context", type=click.IntRange(1), default=512, show_default=True)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Sequences of each GPU in a step.",
)
@click.option("--dtype", type=Choice(FORMS), default="autocast_bfloat16", show_default=True)
@click.option(
    "--checkpoint/--no-checkpoint",
    "checkpointed",
    default=None,
    help="Only with, or only without, activation checkpointing; by default both.",
)
@click.option("--format", type=Choice(FORMATS), default="text", show_default=True)
def fit(size, gpus, device, context, batch, dtype, checkpointed, format):
    """Show what training a model needs on each GPU, whether it fits, and on how many it would.

    One line for each strategy. Sharded state, gradients and weights are divided by the number of
    GPUs; each GPU has its own sequences. The memory is that of the peak of a step with
    scaled_dot_product_attention, AdamW and float32 weights, from a closed form.

    \b
    Example:
      lmperf fit --size 10B --gpus 8 --device H200
    """
    from lmperf.distributed.fit import Setting
    from lmperf.reporting import formats
    from lmperf.reporting.sections.distributed.fit import needs_table
    from lmperf.transformer.sizes import SIZES, canonical

    memory = memory_gib(device) if device else _memory_here()
    setting = Setting(SIZES[canonical(size)], context, batch, dtype)
    chosen = (False, True) if checkpointed is None else (checkpointed,)
    table = needs_table(canonical(size), setting, gpus, memory, chosen)
    print(formats.FORMATS[format](table))


def _memory_here() -> float:
    from lmperf.evidence.machine import detect

    memory = detect().facts.get("device_memory_gib")
    if memory is None:
        raise UserError("this machine has no GPU: name one with --device, such as H200, or its GiB")
    return memory
