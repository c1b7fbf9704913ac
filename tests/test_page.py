"""The page for browsers: who gets it, its headers, and that its files are complete. `./build.sh test-page` uses it in a
browser.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import llmd
from llmd.http.endpoints import page
from tests.serving import Daemon

FOLDER = Path(llmd.__file__).parent / "page"
FILES = sorted(path.name for path in FOLDER.iterdir())
HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


async def test_browsers_get_the_page_and_others_a_line(daemon: Daemon) -> None:
    answer = await daemon.ask("GET", "/", headers=HTML)
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.body == (FOLDER / "index.html").read_bytes()
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        assert (await daemon.ask("GET", "/", headers=headers)).body == b"llmd is running"


async def test_the_unix_socket_has_no_page(daemon: Daemon) -> None:
    """A client of the unix socket may see the sessions of all owners."""
    assert (await daemon.ask("GET", "/", headers=HTML, local=True)).body == b"llmd is running"
    answer = await daemon.ask("GET", "/page/app.js", local=True)
    assert answer.status == 404 and answer.error["code"] == "not_found"


@pytest.mark.parametrize("name", FILES)
async def test_every_file_is_served(daemon: Daemon, name: str) -> None:
    answer = await daemon.ask("GET", f"/page/{name}")
    assert answer.status == 200 and answer.body == (FOLDER / name).read_bytes()
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    again = await daemon.ask("GET", f"/page/{name}", headers={"If-None-Match": answer.headers["Etag"]})
    assert again.status == 304 and again.body == b""


async def test_other_files_are_not_served(daemon: Daemon) -> None:
    for name in ("x.js", "..%2f__init__.py", "%2e%2e%2fapp.py", ""):
        answer = await daemon.ask("GET", f"/page/{name}")
        assert answer.status == 404 and answer.error["code"] == "not_found"


def test_scripts_and_styles_are_files_of_the_page() -> None:
    """The policy forbids scripts and styles within the HTML, and all files of other hosts."""
    html = (FOLDER / "index.html").read_text()
    assert set(re.findall(r'(?:src|href)="/page/([^"]+)"', html)) <= set(FILES)
    assert not re.search(r"<style|style=|\son\w+=|<script>", html)
    for path in FOLDER.glob("*.js"):
        script = path.read_text()
        assert set(re.findall(r'from "\./([^"]+)"', script)) <= set(FILES)
        assert "innerHTML" not in script and "insertAdjacentHTML" not in script and "eval(" not in script
        assert not re.search(r"https?://(?!www\.w3\.org)", script), path.name
    assert set(FILES) == set(page._FILES)


@pytest.mark.parametrize(
    ("name", "roots"),
    [
        ("chat.css", (".chat", ".markdown")),
        ("views.css", (".sessions", ".session-list", ".session-table", ".session-details", ".with-details", ".now")),
    ],
)
def test_a_style_of_a_view_applies_only_in_the_view(name: str, roots: tuple[str, ...]) -> None:
    style = re.sub(r"/\*.*?\*/", "", (FOLDER / name).read_text(), flags=re.DOTALL)
    rules = (rule for rule in re.findall(r"([^{};]+)\{", style) if "@" not in rule)
    selectors = [one.strip() for rule in rules for one in re.split(r",(?![^()]*\))", rule)]
    assert len(selectors) > 40
    assert [one for one in selectors if not re.match(rf"({'|'.join(map(re.escape, roots))})(?![\w-])", one)] == []
