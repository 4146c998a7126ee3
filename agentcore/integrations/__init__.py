"""Other people's systems, each behind an extra and imported only when used."""
