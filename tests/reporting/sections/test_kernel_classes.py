"""Kernel names, as CUPTI and PyTorch report them, are sorted into classes such as matmul."""

import re

import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from lmperf.reporting.sections.profiles.kernel_classes import CLASSES, OTHER, RULES, class_of
from lmperf.transformer.model import TransformerLM

VECTORIZED = "void at::native::vectorized_elementwise_kernel<4, at::native::"
NAMES = [
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_execute__5x_cublas", "matmul"),
    ("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "matmul"),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)", "matmul"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(int)", "matmul"),
    ("aten::addmm", "matmul"),
    ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>", "attention"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7", "attention"),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)", "attention"),
    ("key_gradients_kernel", "attention"),
    ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)", "attention"),
    ("void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*)", "attention"),
    ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>", "optimizer"),
    ("aten::_fused_adamw_", "optimizer"),
    ("Memcpy DtoD (Device -> Device)", "copy"),
    ("Memset (Device)", "copy"),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<4u>>", "copy"),
    ("void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda(Iterator&)>", "copy"),
    ("void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float>", "copy"),
    ("aten::transpose", "copy"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 9>", "reduction"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps>>", "reduction"),
    ("void at::native::elementwise_kernel<128, 4, masked_fill_kernel(Iterator&)>", "elementwise"),
    # A fused kernel has the class of its most expensive operation, even if its name lists casts.
    ("triton_red_fused__to_copy_mean_pow_0", "reduction"),
    ("triton_red_fused__to_copy__unsafe_view_add_mul_sum_view_9", "reduction"),
    ("triton_per_fused__softmax__to_copy_arange_exp_gt_masked_fill_mul_view_3", "reduction"),
    ("triton_per_fused_mean_mul_pow_rsqrt_3", "reduction"),
    ("triton_poi_fused__to_copy_add_mean_mul_rsqrt_4", "reduction"),
    ("triton_poi_fused__to_copy__unsafe_view_add_cat_mul_split_sub_2", "elementwise"),
    ("triton_poi_fused_addmm_relu_1", "elementwise"),
    ("triton_poi_fused_embedding_dense_backward_2", "copy"),
    ("triton_poi_fused__to_copy_t_8", "copy"),
    ("triton_poi_fused_clone_transpose_view_12", "copy"),
    ("triton_tem_fused_mm_0", "matmul"),
    ("triton_tem_fused_flex_attention_1", "attention"),
    ("triton_for_fused_3", "optimizer"),
    ("void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float>", "reduction"),
    (VECTORIZED + "AUnaryFunctor<float, float, float, MulFunctor<float>>>", "elementwise"),
    (VECTORIZED + "CUDAFunctor_add<float>, std::array<char*, 3ul>>(int)", "elementwise"),
    ("triton_poi_fused_mul_silu_4", "elementwise"),
    ("aten::silu", "elementwise"),
    ("ampere_fp64_kernel_of_a_library_yet_unknown", "other"),
]


@pytest.mark.parametrize(("name", "expected"), NAMES, ids=[f"{i}" for i in range(len(NAMES))])
def test_kernel_name_has_the_expected_class(name, expected):
    assert class_of(name) == expected


def test_every_class_has_a_rule_with_a_valid_pattern():
    assert {name for name, _ in RULES} == set(CLASSES) - {OTHER}
    for _, pattern in RULES:
        re.compile(pattern)


def test_nearly_all_operators_of_a_train_step_have_a_class():
    torch.manual_seed(0)
    model = TransformerLM(31, 16, 16, 1, 2, 32, 1e4)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(0, 31, (2, 16))

    def step():
        model(tokens).logsumexp(-1).mean().backward()
        optimizer.step()

    step()  # run once first: the first step also does one-off work
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    times = pd.Series(
        {e.key: e.self_cpu_time_total for e in profiler.key_averages() if e.key[:6] == "aten::"}
    )
    unknown = times[[class_of(name) == OTHER for name in times.index]]
    assert unknown.sum() <= 0.05 * times.sum(), unknown
