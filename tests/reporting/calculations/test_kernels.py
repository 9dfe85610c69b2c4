"""Kernel names, as CUPTI and PyTorch report them, are classified and shortened."""

import re
from pathlib import Path

import pytest

import lmperf
from lmperf.reporting.calculations.kernels import OTHER, class_of, shortened

VECTORIZED = "void at::native::vectorized_elementwise_kernel<4, at::native::"
NAMES = {
    "matmul": [
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_execute__5x_cublas",
        "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(int)",
        "triton_tem_fused_mm_0",
        "aten::addmm",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)",
        "key_gradients_kernel",
        "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)",
        "triton_tem_fused_flex_attention_1",
    ],
    "optimizer": [
        "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>",
        "triton_for_fused_3",
        "adamw_kernel",
        "aten::_fused_adamw_",
    ],
    "copy": [
        "Memcpy DtoD (Device -> Device)",
        "Memset (Device)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<4u>>",
        "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda(Iterator&)>",
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float>",
        "triton_poi_fused_embedding_dense_backward_2",
        "triton_poi_fused__to_copy_t_8",
        "aten::transpose",
    ],
    # A fused kernel has the class of its most expensive operator, even if its name lists casts.
    "reduction": [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9>",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps>>",
        "triton_red_fused__to_copy_mean_pow_0",
        "triton_per_fused__softmax__to_copy_arange_exp_gt_masked_fill_mul_view_3",
        "triton_poi_fused__to_copy_add_mean_mul_rsqrt_4",
        "void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float>",
    ],
    "elementwise": [
        "void at::native::elementwise_kernel<128, 4, masked_fill_kernel(Iterator&)>",
        "triton_poi_fused__to_copy__unsafe_view_add_cat_mul_split_sub_2",
        "triton_poi_fused_mul_silu_4",
        VECTORIZED + "AUnaryFunctor<float, float, float, MulFunctor<float>>>",
        "aten::silu",
    ],
    "other": ["ampere_fp64_kernel_of_a_library_yet_unknown"],
}


@pytest.mark.parametrize("expected", NAMES)
def test_kernel_names_have_the_expected_class(expected):
    assert {name: class_of(name) for name in NAMES[expected]} == dict.fromkeys(
        NAMES[expected], expected
    )


def test_kernels_of_this_project_have_a_class():
    source = Path(lmperf.__file__).parent
    files = [*source.glob("attention/triton/*.py"), *source.glob("transformer/*.py")]
    named = re.compile(r"^def (\w+_kernel)\(", re.MULTILINE)
    names = {name for file in files for name in named.findall(file.read_text("utf-8"))}
    assert {"fused_kernel", "rope_kernel", "adamw_kernel"} <= names
    assert not [name for name in names if class_of(name) == OTHER]


def test_short_names_are_unique_in_any_order_of_names():
    names = [f"sm80_xmma_gemm_tilesize128x{n}_{kind}_cublas" for n in (64, 128) for kind in "tn"]
    multiply = "void at::native::elementwise_kernel<{}, at::native::BinaryFunctor<{}, MulFunctor> >"
    names += [multiply.format(n, dtype) for n in (2, 4) for dtype in ("float", "c10::BFloat16")]
    names += ["void f<int, float>(int)", "void f<float, int>(int)", "aten::mul", "aten::mul_"]
    short = shortened(names)
    assert set(short) == set(names) and len(set(short.values())) == len(names)
    assert short == shortened(reversed(names))
    assert short["aten::mul"] == "aten::mul"
