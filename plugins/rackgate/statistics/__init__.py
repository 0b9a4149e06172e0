"""Percentiles, confidence bounds, rates and time series: pure functions on arrays, each with its formula."""
