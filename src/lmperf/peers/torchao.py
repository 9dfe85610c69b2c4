"""Float8 matmuls of torchao in the train step of the ladder's highest rung, from `torchao`.

torchao replaces the linear layers of the blocks; head and loss, attention, optimizer and CUDA graph
are the project's own. Weights, gradients and moments stay bf16.
"""

from dataclasses import replace
from functools import partial

from lmperf.transformer.model import TransformerLM, twin_of
from lmperf.transformer.steps import GRAPH
from lmperf.transformer.training import WithLoss


def converted(recipe: str, model: TransformerLM, **options: bool) -> TransformerLM:
    """A copy of the model with torchao's float8 linear layers in its blocks.

    recipe: name of a recipe of torchao. options: of torchao's configuration.
    """
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = replace(Float8LinearConfig.from_recipe_name(recipe), **options)
    twin = twin_of(model)
    convert_to_float8_training(twin.blocks, config=config)
    return twin


def _way(recipe: str, model: TransformerLM) -> WithLoss:
    return GRAPH.way(converted(recipe, model))


TENSORWISE = replace(GRAPH, way=partial(_way, "tensorwise"))
