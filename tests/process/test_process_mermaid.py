"""The drawing: every step, every event, every way."""

from agentcore.process import Event, ProcessBuilder, StepFailure, each, failed, gather, latest


def test_drawing_shows_steps_events_and_modes() -> None:
    flow = ProcessBuilder("p", inputs={"topic": str, "reviewers": list[str]})
    flow.outside("decision", bool)
    rejected = flow.event("rejected", str)

    @flow.step
    async def begin() -> int:
        return 1

    @flow.step(inputs={"topic": ("topic", rejected)}, max_runs=3)
    async def draft(topic: str) -> str:
        return topic

    @flow.step(inputs={"reviewer": each("reviewers"), "draft": "draft"}, emits=[rejected])
    async def review(draft: str, reviewer: str) -> Event[str] | str:
        return draft

    @flow.step(inputs={"failures": gather(failed(review))})
    async def explain(failures: list[StepFailure]) -> None:
        return None

    @flow.step(inputs={"draft": latest(draft)})
    async def publish(draft: str, review: list[str], decision: bool, begin: int) -> str:
        return draft

    assert flow.build(publish).mermaid() == (
        "flowchart TD\n"
        "    start((start))\n"
        '    i0(["topic"])\n'
        '    i1(["reviewers"])\n'
        '    o0{{"decision"}}\n'
        '    s0["begin"]\n'
        '    s1["draft (at most 3)"]\n'
        '    s2["review"]\n'
        '    s3["explain"]\n'
        '    s4["publish"]\n'
        "    result((result))\n"
        "    start --> s0\n"
        "    i0 --> s1\n"
        '    s2 -->|"rejected"| s1\n'
        "    s1 --> s2\n"
        '    i1 ==>|"each"| s2\n'
        '    s2 -->|"gather failed"| s3\n'
        '    s1 -.->|"latest"| s4\n'
        "    s2 --> s4\n"
        "    o0 --> s4\n"
        "    s0 --> s4\n"
        "    s4 --> result\n"
    )


def test_names_cannot_break_the_drawing() -> None:
    flow = ProcessBuilder("p", inputs={'a "b"\n<c> & d': int})

    @flow.step(inputs={"x": 'a "b"\n<c> & d'})
    async def one(x: int) -> int:
        return x

    assert 'i0(["a #quot;b#quot; #lt;c#gt; #amp; d"])' in flow.build(one).mermaid()


def test_result_that_is_a_named_event_is_drawn() -> None:
    flow = ProcessBuilder("p", inputs={"x": int})
    done = flow.event("done", int)

    @flow.step(emits=[done])
    async def one(x: int) -> Event[int]:
        return done(x)

    assert '    s0 -->|"done"| result\n' in flow.build(done).mermaid()
