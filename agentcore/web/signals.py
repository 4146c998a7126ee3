"""The server's signals to end, heard before the server acts on them: it waits for its connections first."""

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def told_of_signals(tell: Callable[[], None]) -> Generator[None]:
    """Call a function in the event loop when the process is told to end; whoever listened before is told as well."""
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals to the main thread alone
        yield
        return
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def told(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(tell)
        handler = before[number]
        if callable(handler):
            handler(number, frame)
        elif handler == signal.SIG_DFL:  # nobody else listens: what would have happened without us
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.getsignal(number)
        signal.signal(number, told)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is told:
                signal.signal(number, handler)
