"""Make `planted` importable wherever the tests start."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
