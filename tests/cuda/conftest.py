"""The stand-in's Python side is found by its name from here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
