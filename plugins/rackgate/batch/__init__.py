"""Whether a batch can be retried safely: a checker, an exercise that kills a runner, and a safe runner."""
