"""Records that are kept with a conversation: replaced, taken once, run out, forgotten with it."""

import asyncio
from typing import Any

import pytest

from agentcore.memory.base import Record
from agentcore.testing.conformance.setting import CANCELLATIONS, TURN, Conformance, cancelled_at, needs


class Records(Conformance):
    """Tests of `RecordKeeping`."""

    @needs("RecordKeeping")
    async def test_record_is_kept_and_replaced(self, store: Any, other: Any) -> None:
        assert await store.get_record("u1", "k", "a") is None
        assert await store.put_record("u1", "k", "a", '{"n":1}', seq=3)
        first: Record = await other.get_record("u1", "k", "a")
        assert (first.kind, first.key, first.body, first.seq) == ("k", "a", '{"n":1}', 3)
        assert await other.put_record("u1", "k", "a", "[2]")
        second: Record = await store.get_record("u1", "k", "a")
        assert (second.body, second.seq) == ("[2]", None)
        assert second.created_at >= first.created_at > 0

    @needs("RecordKeeping")
    async def test_body_is_kept_to_the_letter(self, store: Any) -> None:
        body = '{"b": 1,  "a":[1.0,1e2,"\\u0000 \\ud83d é 🌤"],"b2":"' + "x" * 1_000_000 + '"}'
        await store.put_record("u1", "k", "a", body)
        assert (await store.get_record("u1", "k", "a")).body == body

    @needs("RecordKeeping")
    async def test_names_are_apart(self, store: Any) -> None:
        names = [
            ("u1", "k", "a"),
            ("u1", "k", "b"),
            ("u1", "l", "a"),
            ("u2", "k", "a"),
            ("u1", "k:a", ""),
            ("u1", "k", ""),
        ]
        for number, name in enumerate(names):
            assert await store.put_record(*name, str(number), if_absent=True)
        for number, name in enumerate(names):
            assert (await store.get_record(*name)).body == str(number)

    @needs("RecordKeeping")
    async def test_one_that_is_there_is_left_as_it_is_if_so_wished(self, store: Any) -> None:
        assert await store.put_record("u1", "k", "a", "1", if_absent=True)
        assert not await store.put_record("u1", "k", "a", "2", if_absent=True)
        assert (await store.get_record("u1", "k", "a")).body == "1"

    @needs("RecordKeeping")
    async def test_of_many_who_put_an_absent_record_one_does(self, store: Any, other: Any) -> None:
        made = await asyncio.gather(
            *(
                handle.put_record("u1", "k", "a", f'"{n}"', if_absent=True)
                for n, handle in enumerate((store, other) * 4)
            )
        )
        assert sorted(made) == [False] * 7 + [True]
        assert (await store.get_record("u1", "k", "a")).body == f'"{made.index(True)}"'

    @needs("RecordKeeping")
    async def test_of_many_who_take_a_record_one_gets_it(self, store: Any, other: Any) -> None:
        await store.put_record("u1", "k", "a", "1", seq=2)
        taken = await asyncio.gather(*(handle.take_record("u1", "k", "a") for handle in (store, other) * 4))
        [record] = [one for one in taken if one is not None]
        assert (record.kind, record.key, record.body, record.seq) == ("k", "a", "1", 2)
        assert await store.get_record("u1", "k", "a") is None
        assert await store.put_record("u1", "k", "a", "2", if_absent=True)

    @needs("RecordKeeping")
    async def test_records_are_listed_by_number_then_by_key(self, store: Any) -> None:
        for key, seq in (("d", 7), ("c", None), ("b", 5), ("a", 7), ("B", None)):
            await store.put_record("u1", "k", key, "1", seq=seq)
        await store.put_record("u1", "other", "x", "1")
        await store.put_record("u2", "k", "x", "1")
        assert [(one.key, one.seq) for one in await store.list_records("u1", "k")] == [
            ("B", None),
            ("c", None),
            ("b", 5),
            ("a", 7),
            ("d", 7),
        ]
        assert list(await store.list_records("unknown", "k")) == []

    @needs("RecordKeeping")
    async def test_record_that_has_run_out_is_gone(self, store: Any, other: Any) -> None:
        await store.put_record("u1", "k", "a", "1", expires_in=0)
        await store.put_record("u1", "k", "b", "2", expires_in=3600)
        assert await other.get_record("u1", "k", "a") is None
        assert await store.take_record("u1", "k", "a") is None
        assert [one.key for one in await store.list_records("u1", "k")] == ["b"]
        assert await store.put_record("u1", "k", "a", "3", if_absent=True)
        assert (await store.get_record("u1", "k", "a")).body == "3"

    @needs("RecordKeeping")
    async def test_record_that_replaces_one_that_runs_out_stays(self, store: Any) -> None:
        await store.put_record("u1", "k", "a", "1", expires_in=0)
        await store.put_record("u1", "k", "a", "2")
        assert (await store.get_record("u1", "k", "a")).body == "2"

    @needs("RecordKeeping")
    async def test_records_are_forgotten_with_the_conversation(self, store: Any, other: Any) -> None:
        await store.add("u1", TURN)
        for name in ("u1", "u2", "u3"):
            await store.put_record(name, "k", "a", "1")
        await other.clear("u1")
        await other.clear("u2")  # it has no messages
        assert await store.get_record("u1", "k", "a") is None
        assert await store.get_record("u2", "k", "a") is None
        assert await store.get_record("u3", "k", "a") is not None

    @needs("RecordKeeping", "MessageLog")
    async def test_records_do_not_number_messages(self, store: Any) -> None:
        await store.put_record("u1", "k", "a", "1", seq=40)
        assert await store.version("u1") == 0
        await store.append("u1", TURN, turn_id="t1", position=0, expected_version=0)
        assert (await store.get_record("u1", "k", "a")).seq == 40

    @needs("RecordKeeping")
    @pytest.mark.parametrize("when", CANCELLATIONS)
    async def test_cancelled_put_is_done_or_not_done(self, store: Any, when: str) -> None:
        step, reached = 1, True
        while reached:
            key = f"a{step}"
            reached = await cancelled_at(store.put_record("u1", "k", key, "1"), step, when)
            found = await store.get_record("u1", "k", key)
            assert found is None or found.body == "1"
            assert await store.put_record("u1", "k", key, "2", if_absent=True) is (found is None)
            step += 1
