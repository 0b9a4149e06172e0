"""Facts of a host and what is wrong with them."""
