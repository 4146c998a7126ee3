"""What a model writes as nodes: Markdown is shown as such, and nothing else becomes more than text."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from agentcore import ChatClient, InMemoryChatMemory
from agentcore.testing import Reply, ScriptedModel
from tests.support.page import opened_page

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

RENDER = """async (text) => {
    const { markdown } = await import('./static/markdown.js');
    const made = document.createElement('div');
    made.append(...markdown(text));
    return made.innerHTML;
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Page]:
    client = ChatClient(ScriptedModel([]), memory=InMemoryChatMemory())
    async with opened_page(browser, client, tmp_path_factory.mktemp("markdown")) as opened:
        yield opened.page


def link(address: str, text: str) -> str:
    return f'<a href="{address}" target="_blank" rel="noopener noreferrer nofollow">{text}</a>'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain", "<p>plain</p>"),
        ("one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"),
        ("one  \ntwo\\\nthree", "<p>one  <br>two<br>three</p>"),
        ("# One\n### Three ##\n# One", "<h3>One</h3><h4>Three</h4><h3>One</h3>"),
        ("#### A\n##### B\n###### C\n## D", "<h3>A</h3><h4>B</h4><h5>C</h5><h4>D</h4>"),
        ("#hashtag", "<p>#hashtag</p>"),
        ("a\n***\nb", "<p>a</p><hr><p>b</p>"),
        (
            "**b** *i* __b__ _i_ ~~d~~",
            "<p><strong>b</strong> <em>i</em> <strong>b</strong> <em>i</em> <del>d</del></p>",
        ),
        ("***both*** **a *b* c**", "<p><strong><em>both</em></strong> <strong>a <em>b</em> c</strong></p>"),
        ("*a **b** c*", "<p><em>a <strong>b</strong> c</em></p>"),
        ("snake_case_name 2 * 3 * 4 ** 5", "<p>snake_case_name 2 * 3 * 4 ** 5</p>"),
        ("**open *too", "<p>**open *too</p>"),
        (r"\*no\* \[no](x)", "<p>*no* [no](x)</p>"),
        ("`a * b` ``x ` y`` `open", "<p><code>a * b</code> <code>x ` y</code> `open</p>"),
        ("**`a ** b`**", "<p><strong><code>a ** b</code></strong></p>"),
        ("- a\n- b\n  - c\n- d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"),
        ("3. a\n4) b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("1. a\n\n   more\n2. b", "<ol><li><p>a</p><p>more</p></li><li><p>b</p></li></ol>"),
        ("- a\n\ntext", "<ul><li>a</li></ul><p>text</p>"),
        ("- a\n1. b", "<ul><li>a</li></ul><ol><li>b</li></ol>"),
        ("- a\n  lazy\nlazier", "<ul><li>a\nlazy\nlazier</li></ul>"),
        ("> a\n> - b\n\nc", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote><p>c</p>"),
        ("a - b\n+ c", "<p>a - b</p><ul><li>c</li></ul>"),
    ],
)
async def test_markdown_becomes_nodes(page: Page, text: str, html: str) -> None:
    assert await page.evaluate(RENDER, text) == html


@pytest.mark.parametrize(
    ("text", "language", "code"),
    [
        ("```python\nif a:\n    b()\n```", "python", "if a:\n    b()"),
        ("~~~\n```\n~~~", "code", "```"),
        ("````\n```\nx\n```\n````", "code", "```\nx\n```"),
        ("```js\nstill being writt", "js", "still being writt"),
        ("```\n<b>*x*</b>\n```", "code", "<b>*x*</b>"),
        ("  ```\n    a\n  b\n  ```", "code", "  a\nb"),
    ],
)
async def test_fenced_code_is_kept_as_it_is(page: Page, text: str, language: str, code: str) -> None:
    found = """async (text) => {
        const { markdown } = await import('./static/markdown.js');
        const made = document.createElement('div');
        made.append(...markdown(text));
        return [made.querySelector('.code-head span').textContent, made.querySelector('pre code').textContent,
                made.childNodes.length];
    }"""
    assert await page.evaluate(found, text) == [language, code, 1]


async def test_table_has_heads_and_sides(page: Page) -> None:
    html = await page.evaluate(RENDER, "| a | b |\n|:--|--:|\n| *1* | x \\| y |\n| 2\n\nafter")
    assert html == (
        '<div class="table" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th scope="col">a</th>'
        '<th class="end" scope="col">b</th></tr></thead><tbody><tr><td><em>1</em></td><td class="end">x | y</td></tr>'
        '<tr><td>2</td><td class="end"></td></tr></tbody></table></div><p>after</p>'
    )


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("[a](https://x.org/p?q=1 'title')", link("https://x.org/p?q=1", "a")),
        ("[*a*](<https://x.org/>)", link("https://x.org/", "<em>a</em>")),
        ("[w](https://x.org/a_(b))", link("https://x.org/a_(b)", "w")),
        ("<https://x.org/>", link("https://x.org/", "https://x.org/")),
        ("[m](mailto:kim@x.org)", link("mailto:kim@x.org", "m")),
        ("(see https://x.org/a_b_c).", f"(see {link('https://x.org/a_b_c', 'https://x.org/a_b_c')})."),
        ("![cat](https://x.org/cat.png)", link("https://x.org/cat.png", "cat")),
        ("[a](/admin)", "[a](/admin)"),
        ("[a](javascript:alert(1))", "[a](javascript:alert(1))"),
        ("[a](JaVaScRiPt:alert(1))", "[a](JaVaScRiPt:alert(1))"),
        ("[a](data:text/html,x)", "[a](data:text/html,x)"),
        ("![x](data:image/svg+xml,x)", "![x](data:image/svg+xml,x)"),
        ("[a](vbscript:x)", "[a](vbscript:x)"),
        ("xhttps://x.org", "xhttps://x.org"),
        ('<a href="javascript:x">y</a>', '&lt;a href="javascript:x"&gt;y&lt;/a&gt;'),
        ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)&gt;"),
        ('[a](https://x.org/"onmouseover="alert(1))', link("https://x.org/%22onmouseover=%22alert(1)", "a")),
    ],
)
async def test_links_go_only_where_a_link_may_go(page: Page, text: str, html: str) -> None:
    assert await page.evaluate(RENDER, text) == f"<p>{html}</p>"


@pytest.mark.parametrize(
    "piece",
    ["*a ", "**a ", "_", "[", "](", "`", "``x", "> ", "- ", "~~", "<", "\\", "***", "[a](", "| a ", "1. ", "((", "h"],
)
async def test_text_of_any_kind_takes_time_in_proportion_to_its_length(page: Page, piece: str) -> None:
    took = """async (text) => {
        const { markdown } = await import('./static/markdown.js');
        const began = performance.now();
        const made = document.createElement('div');
        made.append(...markdown(text));
        return [made.childNodes.length > 0, performance.now() - began];
    }"""
    text = piece * (60_000 // len(piece))
    shown, milliseconds = await page.evaluate(took, text)
    assert shown
    assert milliseconds < 3_000


async def test_only_what_changed_is_made_anew(page: Page) -> None:
    kept = """async () => {
        const { MarkdownView } = await import('./static/markdown.js');
        const made = document.createElement('div');
        const view = new MarkdownView(made);
        view.show('one\\n\\n```\\ntwo');
        const [first, second] = made.childNodes;
        view.show('one\\n\\n```\\ntwo\\n```\\n\\nthree');
        return [first === made.childNodes[0], second === made.childNodes[1], made.childNodes.length];
    }"""
    assert await page.evaluate(kept) == [True, False, 3]


async def test_script_in_an_answer_stays_text(browser: Browser, tmp_path: Path) -> None:
    evil = "<script>document.title='gone'</script><img src=x onerror=\"document.title='gone'\"> [x](javascript:1)"
    client = ChatClient(ScriptedModel([Reply(reasoning=evil, text=evil)]), memory=InMemoryChatMemory())
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say(evil)
        for _ in range(2):
            await expect(opened.turns.locator(".prose")).to_have_text(evil)
            await expect(opened.turns.locator(".said pre")).to_have_text(evil)
            for name in ("script", "img", "a"):
                await expect(opened.turns.locator(name)).to_have_count(0)
            assert await opened.page.title() == "agentcore · scripted"
            await opened.page.reload()


async def test_browser_refuses_markup_even_if_a_script_would_make_it(browser: Browser, tmp_path: Path) -> None:
    client = ChatClient(ScriptedModel([]), memory=InMemoryChatMemory())
    async with opened_page(browser, client, tmp_path) as opened:
        source = """const refused = [];
            for (const act of [() => { document.body.innerHTML = '<b>x</b>' }, () => eval('1')]) {
                try { act(); } catch (error) { refused.push(error.name); }
            }
            export { refused };"""
        await opened.page.route(
            "**/static/evil.js", lambda route: route.fulfill(body=source, content_type="text/javascript")
        )
        refused = await opened.page.evaluate("import('./static/evil.js').then(({ refused }) => refused)")
        assert refused == ["TypeError", "EvalError"]
        opened.complaints.clear()


async def test_code_is_copied(browser: Browser, tmp_path: Path) -> None:
    code = "print('hi')"
    client = ChatClient(ScriptedModel([f"```python\n{code}\n```"]), memory=InMemoryChatMemory())
    async with opened_page(browser, client, tmp_path, permissions=["clipboard-read", "clipboard-write"]) as opened:
        await opened.say("code")
        await opened.turns.get_by_role("button", name="Copy").click()
        await expect(opened.turns.get_by_role("button", name="Copied")).to_be_visible()
        assert json.dumps(await opened.page.evaluate("navigator.clipboard.readText()")) == json.dumps(code)
