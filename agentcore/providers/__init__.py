"""The services that answer: connections, retries, presets."""
