"""Does it hold?"""

import pytest

from rackgate_suites.slo import test_slo

__all__ = ["test_slo"]

pytestmark = pytest.mark.rack_acceptance
