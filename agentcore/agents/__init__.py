"""Several agents in one conversation: one as a tool of another, or one after another."""
