"""Make `planted` importable wherever the tests of reporting are started."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
