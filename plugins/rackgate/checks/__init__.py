"""Which checks a run consists of: acceptance rows x entities of the target."""
