"""A process that is killed in the middle of a turn loses nothing that was acknowledged, and the conversation goes on.

Its tools' effects are counted in a table of their own, by call: whether the turn is recovered after the kill, was being
resumed, or was asking the model again, no call that was begun is begun again, and the model is told what it brought.

Two hundred kills at random points: `python -m tests.memory.crashes --kills 200 --store sqlite` (or `postgres`, `redis`).
"""

from pathlib import Path

import pytest

from tests.memory.crashes import PLACES, Point, Trial, hammered

pytestmark = pytest.mark.asyncio

POINTS = [
    *(Point(what, 0, place) for what, places in PLACES.items() for place in {0, places - 1}),
    Point("after commit, before reply", 1, 1),
    Point("in the batch", 2, 1),
    Point("around a resumption", 0, 1),
    Point("around a resumption", 0, 2),
]
FEW = [Point(what, 1, PLACES[what] - 1) for what in PLACES]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/conversations.db"


@pytest.mark.parametrize("point", POINTS, ids=str)
async def test_killed_process_loses_and_doubles_nothing(sqlite_url: str, tmp_path: Path, point: Point) -> None:
    await Trial(sqlite_url, tmp_path).kill_at(point)


async def test_one_conversation_survives_kill_after_kill(sqlite_url: str, tmp_path: Path) -> None:
    trial = Trial(sqlite_url, tmp_path)
    for point in FEW:
        await trial.kill_at(point)


async def test_kills_over_postgres(postgres_dsn: str, tmp_path: Path) -> None:
    trial = Trial(postgres_dsn, tmp_path)
    for point in FEW:
        await trial.kill_at(point)


async def test_kills_over_redis(redis_url: str, tmp_path: Path) -> None:
    trial = Trial(redis_url, tmp_path)
    for point in FEW:
        await trial.kill_at(point)


async def test_two_processes_hammer_one_conversation(sqlite_url: str, tmp_path: Path) -> None:
    await hammered(sqlite_url, tmp_path, workers=2, count=8)


async def test_two_processes_hammer_one_conversation_over_postgres(postgres_dsn: str, tmp_path: Path) -> None:
    await hammered(postgres_dsn, tmp_path, workers=2, count=8)
