"""The rack's own signals on the requests' time axis."""
