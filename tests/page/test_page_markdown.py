"""The Markdown of answers, as a browser renders it: what becomes which element, hostile texts, long answers."""

from __future__ import annotations

import pytest

from tests.page.browser import Browser
from tests.page.conftest import StartDaemon

RENDER = """
const [text, step, done] = arguments;
import("/page/markdown.js").then(({ Markdown }) => {
  const markdown = new Markdown();
  for (let n = step; n < text.length; n += step) {
    markdown.update(text.slice(0, n), false);
  }
  markdown.update(text, true);
  done(markdown.element.innerHTML);
});
"""

NEW_TAB = 'rel="noopener noreferrer" target="_blank"'
CASES = {
    "# One\n\n### Two ##": "<h3>One</h3><h4>Two</h4>",
    "**b** *i* ***bi*** ~~d~~ `c < d`": "<p><strong>b</strong> <em>i</em> <strong><em>bi</em></strong> <del>d</del> "
    "<code>c &lt; d</code></p>",
    "snake_case_name 2 * 3 * 4 \\*no\\* **open": "<p>snake_case_name 2 * 3 * 4 *no* **open</p>",
    "- a\n  - b\n- c\n\ntext\n-5": "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul><p>text<br>-5</p>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "> a\n> > b\n\n---": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><hr>",
    "[a](https://b.example/c_(d)) <mailto:e@f.example>": f'<p><a href="https://b.example/c_(d)" {NEW_TAB}>a</a> '
    f'<a href="mailto:e@f.example" {NEW_TAB}>mailto:e@f.example</a></p>',
    "see https://b.example/c.": f'<p>see <a href="https://b.example/c" {NEW_TAB}>https://b.example/c</a>.</p>',
    "![i](https://b.example/i.png)": f'<p><a href="https://b.example/i.png" {NEW_TAB}>Image: i</a></p>',
    "<img src=x onerror=alert(1)><script>alert(1)</script>": "<p>&lt;img src=x onerror=alert(1)&gt;&lt;script&gt;"
    "alert(1)&lt;/script&gt;</p>",
    "[a](javascript:alert(1)) [b](data:text/html,x) [c](JaVaScRiPt:x)": "<p>[a](javascript:alert(1)) "
    "[b](data:text/html,x) [c](JaVaScRiPt:x)</p>",
    "| a | b |\n|---|:-:|\n| `c` | d |": '<div class="table" tabindex="0" role="group" aria-label="Table"><table>'
    '<thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead>'
    "<tbody><tr><td><code>c</code></td><td>d</td></tr></tbody></table></div>",
    "```js\nlet a;\n\n**b**\n": '<div class="code"><div class="code-head"><span>js</span>'
    '<button type="button" class="small">Copy code</button></div>'
    '<pre tabindex="0"><code>let a;\n\n**b**\n</code></pre></div>',
}


@pytest.fixture
def page(browser: Browser, start_daemon: StartDaemon) -> Browser:
    browser.open(start_daemon(), "#chat")
    return browser


@pytest.mark.parametrize("step", [1, 1000000], ids=["streamed", "at once"])
def test_markdown(page: Browser, step: int) -> None:
    for source, html in CASES.items():
        assert page.driver.execute_async_script(RENDER, source, step) == html, source


def test_hostile_markdown_takes_no_longer_than_its_length(page: Browser) -> None:
    """With 100,000 characters, quadratic time would be minutes. The driver gives up after 30 s."""
    n = 100_000
    for source in (
        ">" * n,
        "> " * n,
        "[" * n,
        "[a](" * n,
        "*a " * n,
        "`x``y" * n,
        "- " * n,
        " " * n + "x|-\n" + " " * n + "-|x",
        "a\n" * n,
        "`" * n + "x`",
        "| a " * n,
        "|a" * (n // 8) + "\n" + "|-" * (n // 8) + "\n" + "|\n" * (n // 4),
        "\n".join("  " * i + "- x" for i in range(400)),
    ):
        assert page.driver.execute_async_script(RENDER, source, len(source)) != ""


def test_runs_of_backquotes_of_many_lengths_take_no_longer_than_their_length(page: Browser) -> None:
    """The lengths of n characters' runs are different up to the root of n, so a search for each would take n ** 1.5."""
    assert (
        page.driver.execute_async_script(
            """
const done = arguments[0];
import("/page/inline.js").then(({ inline }) => {
  const runs = Array.from({ length: 4000 }, (_, i) => "`".repeat(i + 1));
  done(inline(runs.join("x")).length);
});
"""
        )
        == 2 * 4000 - 1
    )


def test_a_long_answer_renders_only_its_last_block_again(page: Browser) -> None:
    n_added = page.driver.execute_async_script("""
const done = arguments[0];
import("/page/markdown.js").then(({ Markdown }) => {
  const markdown = new Markdown();
  let n_added = 0;
  const append = markdown.element.append.bind(markdown.element);
  markdown.element.append = (...nodes) => { n_added += nodes.length; append(...nodes); };
  const text = "A paragraph of **some** words.\\n\\n".repeat(6000);
  for (let n = 0; n < text.length; n += 100) {
    markdown.update(text.slice(0, n), false);
  }
  markdown.update(text, true);
  done([n_added, markdown.element.childElementCount, text.length]);
});
""")
    assert n_added[1] == 6000 and n_added[2] > 190_000
    assert n_added[0] < 3 * 6000
