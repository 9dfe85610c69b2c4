"""The functions by which the course's tests find an implementation."""

import torch
from torch import nn


def get_flashattention_autograd_function_pytorch() -> type:
    from cs336_systems.flash_attention import FlashAttentionPyTorch

    return FlashAttentionPyTorch


def get_flashattention_autograd_function_triton() -> type:
    from cs336_systems.flash_attention_triton import FlashAttentionTriton

    return FlashAttentionTriton


def get_ddp_individual_parameters(module: nn.Module) -> nn.Module:
    from cs336_systems.ddp import DDPIndividualParameters

    return DDPIndividualParameters(module)


def ddp_individual_parameters_on_after_backward(
    ddp_model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    ddp_model.finish_gradient_synchronization()


def get_ddp_bucketed(module: nn.Module, bucket_size_mb: float) -> nn.Module:
    from cs336_systems.ddp import DDPBucketed

    return DDPBucketed(module, bucket_size_mb)


def ddp_bucketed_on_after_backward(ddp_model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    ddp_model.wait_for_buckets()


def ddp_bucketed_on_train_batch_start(
    ddp_model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    ddp_model.start_batch()


def get_fsdp(module: nn.Module, compute_dtype: torch.dtype | None = None) -> nn.Module:
    from cs336_systems.fsdp import FSDP

    return FSDP(module, compute_dtype)


def fsdp_on_after_backward(fsdp_model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    fsdp_model.finish_gradient_synchronization()


def fsdp_gather_full_params(fsdp_model: nn.Module) -> dict[str, torch.Tensor]:
    return fsdp_model.gather_full_params()


def get_sharded_optimizer(
    params, optimizer_cls: type[torch.optim.Optimizer], **options
) -> torch.optim.Optimizer:
    from cs336_systems.sharded_optimizer import ShardedOptimizer

    return ShardedOptimizer(params, optimizer_cls, **options)
