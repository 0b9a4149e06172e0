"""What reports show, computed from the records of a run: data without markup."""
