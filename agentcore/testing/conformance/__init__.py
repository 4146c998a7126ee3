"""The tests of `agentcore.testing.store_conformance`, one module for each power of a store."""
