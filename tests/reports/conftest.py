"""Makes the generator of synthetic runs importable beside its tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
