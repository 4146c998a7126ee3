"""The onion around the model call, the tools and the turn."""
