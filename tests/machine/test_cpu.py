"""Tests of the name of the CPU."""

import pytest

from lmperf.machine import cpu


@pytest.mark.parametrize(
    ("name", "flags", "shown"),
    [
        ("AMD EPYC", "fma avx2 avx512f avx512_bf16", "AMD EPYC, AVX-512 BF16"),
        ("AMD EPYC", "fma avx2", "AMD EPYC, AVX2"),
        ("AMD EPYC", "fma", "AMD EPYC"),
        ("AMD EPYC 9654 96-Core Processor", "fma avx2", "AMD EPYC 9654 96-Core Processor"),
    ],
)
def test_cpu_without_a_number_is_named_by_its_instructions(monkeypatch, name, flags, shown):
    text = f"processor : 0\nmodel name : {name}\nflags : {flags}\n"
    monkeypatch.setattr(cpu.Path, "read_text", lambda path: text)
    assert cpu.cpu_model.__wrapped__() == shown
