"""Waiting for a condition, with a deadline."""

import time


def until(condition, deadline_s=20.0):
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it never came")
