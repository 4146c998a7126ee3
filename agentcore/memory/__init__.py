"""Where conversations live."""
