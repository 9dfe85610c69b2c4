"""Lets the tests of the site import `site_pages`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
