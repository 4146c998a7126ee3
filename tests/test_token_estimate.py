"""The estimate of a text's tokens: near what tiktoken counts, linear, and the same every time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.token_estimate import estimate_tokens

# Counted with tiktoken 0.14, o200k_base.
COUNTED = [
    (
        "chat",
        70,
        "Hi! Could you help me plan a trip to Lisbon in May? I'd like to stay about five days, see the old town, and maybe take a day trip to Sintra. It's my first time there, so I don't know which neighbourhood to choose. Sure, happy to help: Lisbon in May is lovely, warm and not too crowded.",
    ),
    (
        "prose",
        58,
        "The committee met for the third time on Thursday evening, and although nobody expected an agreement, the chairwoman had prepared a proposal that surprised everyone. It suggested postponing the construction of the new library until the financial situation of the municipality became clearer, while keeping the existing building open at weekends.",
    ),
    (
        "markdown",
        81,
        "## Installation\n\n1. Clone the repository.\n2. Run `make install` in the root folder.\n3. Copy `.env.example` to `.env` and fill in your **API key**.\n\n| Option | Default | Meaning |\n|--------|---------|---------|\n| `timeout` | 30 | seconds to wait |\n| `retries` | 2 | attempts after the first |\n",
    ),
    (
        "python",
        86,
        'class Cache:\n    """Keeps the newest entries."""\n\n    def __init__(self, max_size: int = 128) -> None:\n        self._entries: dict[str, object] = {}\n        self.max_size = max_size\n\n    def get(self, key: str, default: object = None) -> object:\n        try:\n            return self._entries[key]\n        except KeyError:\n            return default\n',
    ),
    (
        "javascript",
        58,
        "export async function fetchUser(id, { signal } = {}) {\n  const response = await fetch(`/api/users/${encodeURIComponent(id)}`, { signal });\n  if (!response.ok) {\n    throw new Error(`Request failed: ${response.status}`);\n  }\n  return response.json();\n}\n",
    ),
    (
        "json",
        94,
        '{"city":"Oslo","temperature":12.5,"conditions":["cloudy","light rain"],"wind":{"speed_kmh":14,"direction":"NW"},"forecast":[{"day":"2026-12-02","high":9,"low":3},{"day":"2026-12-03","high":7,"low":-1}],"alerts":null,"updated_at":"2026-12-01T08:15:00Z"}',
    ),
    (
        "json-indented",
        88,
        '{\n  "name": "get_weather",\n  "description": "Tell the weather in a city.",\n  "parameters": {\n    "type": "object",\n    "properties": {\n      "city": {"type": "string", "description": "Name of the city"},\n      "unit": {"type": "string", "enum": ["C", "F"]}\n    },\n    "required": ["city"]\n  }\n}',
    ),
    (
        "log",
        99,
        "2026-12-01T08:15:02.113Z INFO  [worker-3] request id=9f86d081884c7d65 path=/api/v1/users/48213 status=200 took=35ms\n2026-12-01T08:15:02.940Z ERROR [worker-1] request id=60303ae22b998861 path=/api/v1/orders/7 status=500 took=812ms\n",
    ),
    (
        "html",
        53,
        '<ul class="nav"><li><a href="/docs/intro">Introduction</a></li><li><a href="/docs/install">Installation</a></li></ul>\n<p>Read the <strong>guide</strong> before you start.</p>\n',
    ),
    (
        "german",
        49,
        "Die Bundesregierung hat am Mittwoch einen neuen Gesetzentwurf vorgestellt, der die Förderung erneuerbarer Energien deutlich vereinfachen soll. Kritiker befürchten jedoch, dass kleinere Unternehmen durch die zusätzlichen Auflagen benachteiligt werden könnten.",
    ),
    (
        "french",
        42,
        "Le gouvernement a présenté mercredi un nouveau projet de loi destiné à simplifier l'aide aux énergies renouvelables. Les critiques craignent cependant que les petites entreprises ne soient désavantagées par ces obligations supplémentaires.",
    ),
    (
        "russian",
        49,
        "Правительство представило в среду новый законопроект, который должен упростить поддержку возобновляемых источников энергии. Критики, однако, опасаются, что небольшие компании окажутся в невыгодном положении.",
    ),
    (
        "chinese",
        87,
        "人工智能是计算机科学的一个分支，它企图了解智能的实质，并生产出一种新的能以人类智能相似的方式做出反应的智能机器。该领域的研究包括机器人、语言识别、图像识别、自然语言处理和专家系统等。我昨天在网上买了一件衣服，但是收到以后发现尺码不对，请问可以退货吗？",
    ),
    (
        "japanese",
        82,
        "人工知能とは、人間の知的な活動の一部をコンピューターで再現する技術のことです。近年、機械学習や深層学習の発展により、画像認識や自然言語処理などの分野で大きな成果を上げています。明日の東京の天気を教えてください。",
    ),
    (
        "korean",
        66,
        "인공지능은 인간의 학습 능력과 추론 능력을 인공적으로 구현하려는 컴퓨터 과학의 세부 분야 중 하나이다. 최근에는 기계 학습과 심층 학습의 발전으로 많은 분야에서 성과를 내고 있다. 내일 서울 날씨를 알려 주세요.",
    ),
    ("emoji", 28, "Great job 👍🎉 we shipped it 🚀🚀 see you at the party 🥳 bring cake 🍰 and good mood 😀"),
    ("quotes", 23, "“I don’t know,” she said — “maybe it’s too late…” He shrugged: ‘We’ll see.’"),
]
PROSE = ("chat", "prose", "markdown", "python", "german", "japanese", "korean")


@pytest.mark.parametrize(("kind", "tokens", "text"), COUNTED, ids=[row[0] for row in COUNTED])
def test_estimate_is_near_the_count_of_a_vocabulary(kind: str, tokens: int, text: str) -> None:
    off = estimate_tokens(text) / tokens - 1
    assert abs(off) <= (0.15 if kind in PROSE else 0.31)


def test_estimate_is_near_over_all_kinds_together() -> None:
    off = sum(estimate_tokens(text) for *_, text in COUNTED) / sum(tokens for _, tokens, _ in COUNTED) - 1
    assert abs(off) <= 0.10


def test_empty_text_has_no_tokens() -> None:
    assert estimate_tokens("") == 0


@pytest.mark.parametrize("text", ["a", " ", "\n", "é", "中", "👍", "\ud800", "\x00", "\u3000", " é ", "a中"])
def test_shortest_texts_have_a_token_or_two(text: str) -> None:
    assert 0 <= estimate_tokens(text) <= 3


@pytest.mark.parametrize(
    ("text", "tokens"), [("é" * 50, 20), ("中" * 50, 40), ("中" * 50 + "a", 41), ("👍 " * 9 + "👍", 16)]
)
def test_other_scripts_weigh_by_character(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text(max_size=200))
def test_estimate_is_never_more_than_the_bytes(text: str) -> None:
    assert 0 <= estimate_tokens(text) <= max(len(text.encode("utf-8", "replace")), 2 * len(text))


@given(st.text(max_size=100), st.text(max_size=100))
def test_estimate_of_a_whole_is_about_that_of_its_parts(first: str, second: str) -> None:
    whole = estimate_tokens(f"{first}\n\nand {second}")
    assert abs(whole - estimate_tokens(first) - estimate_tokens(second)) <= 6


SHAPES = ["a", " ", "!", "_", "'", "\n", "é", "中", "👍", "-", "Ab1 ", "é ", "中\n", " \t", "\x01"]


@pytest.mark.parametrize("shape", SHAPES, ids=[ascii(shape) for shape in SHAPES])
def test_long_text_takes_linear_time(shape: str) -> None:
    def seconds(count: int) -> float:
        text = shape * (count // len(shape))
        begun = time.perf_counter()
        estimate_tokens(text)
        return time.perf_counter() - begun

    short = min(seconds(20_000) for _ in range(3))
    assert min(seconds(200_000) for _ in range(3)) < short * 40 + 0.01  # a hundredfold if it looked back
