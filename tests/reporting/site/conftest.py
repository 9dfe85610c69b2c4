"""Fixture: the files of a site."""

import pytest

from lmperf.reporting.site.build import files_of_site


@pytest.fixture(scope="session")
def site_files(hostile_site):
    """File name -> content of the site of two machines, one with markup in its text."""
    return files_of_site(hostile_site)
