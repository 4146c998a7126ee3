"""What a store of conversations promises, as tests: subclass them, and pytest runs them over your store.

    import pytest
    from agentcore.testing.store_conformance import ChatMemoryConformance

    class TestMyStore(ChatMemoryConformance):
        powers = {"MessageLog", "TailReading"}       # what it has to have: these are never skipped

        @pytest.fixture
        def make(self, tmp_path):                    # a function that opens a handle on the same, at first empty, data
            return lambda: MyStore(tmp_path / "conversations")

`make` is called again for a second handle, as another process would have it; for a store that is shared by handing it
around it returns the same object. It may be a coroutine function. Handles that have `aclose` are closed. Tests of a
power that the store lacks are skipped, and say which protocol of `agentcore.memory.base` that is; `Leasing` is that of
`agentcore.memory.leases`. Needs pytest and pytest-asyncio, in whichever mode.
"""

import pytest

_PARTS = ("basics", "branches", "listing", "log", "records", "turns", "values")
pytest.register_assert_rewrite(*(f"agentcore.testing.conformance.{part}" for part in _PARTS))

from agentcore.testing.conformance.basics import Basics  # noqa: E402 - after their asserts are made to speak
from agentcore.testing.conformance.branches import Branches  # noqa: E402
from agentcore.testing.conformance.listing import Listing  # noqa: E402
from agentcore.testing.conformance.log import Log  # noqa: E402
from agentcore.testing.conformance.records import Records  # noqa: E402
from agentcore.testing.conformance.setting import Make  # noqa: E402
from agentcore.testing.conformance.turns import Turns  # noqa: E402
from agentcore.testing.conformance.values import Values  # noqa: E402

__all__ = ["ChatMemoryConformance", "Make"]


class ChatMemoryConformance(Basics, Values, Log, Turns, Listing, Branches, Records):
    """All tests of a store. See the module for how to use them.

    Attributes:
        powers: names of the protocols that the store has to have: their tests fail instead of being skipped.
    """
