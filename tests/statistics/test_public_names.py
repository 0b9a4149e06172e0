from __future__ import annotations

import rackgate.statistics


def test_every_public_name_exists_and_says_what_it_is():
    names = rackgate.statistics.__all__
    assert len(set(names)) == len(names)
    for name in names:
        value = getattr(rackgate.statistics, name)
        assert not callable(value) or value.__doc__
