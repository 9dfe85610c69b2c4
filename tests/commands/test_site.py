"""Tests of `lmperf site` where there is nothing to show."""


def test_site_without_evidence_says_what_to_do(lmperf, folder):
    code, out, error = lmperf("site")
    assert code == 2 and not out
    assert error == "lmperf: there is no evidence in report/; run make report first\n"
    assert not (folder / "site").exists()
