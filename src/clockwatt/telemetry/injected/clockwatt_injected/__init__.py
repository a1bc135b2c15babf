"""What a recorded program's own Python runs: the standard library alone, and any Python since 3.9."""
