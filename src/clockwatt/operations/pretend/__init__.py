"""A program of the user's own run as if this machine had a GPU: its step is recorded on the meta device."""
