"""Tests of `lmperf site` and `lmperf history` where there is nothing to show."""


def test_site_without_evidence_says_what_to_do(lmperf, folder):
    code, out, error = lmperf("site")
    assert code == 2 and not out
    assert error == "lmperf: there is no evidence in report/; run make report first\n"
    assert not (folder / "site").exists()


def test_history_of_an_unknown_machine_is_an_error(lmperf):
    code, out, error = lmperf("history", "nvidia-h100")
    assert (code, out, error) == (2, "", "lmperf: nvidia-h100 has no evidence in report/\n")


def test_history_of_an_unknown_benchmark_is_an_error(lmperf):
    code, _, error = lmperf("history", "--benchmark", "atention")
    assert code == 2 and "did you mean attention?" in error
