"""A network put together from its calls, and what it costs beyond them."""
