"""Wire formats: neutral values to bytes and back. No I/O, no state between calls."""
