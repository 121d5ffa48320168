"""The page is one file: its parts fit together, it names no other place, and texts stay texts."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import pytest

from arachne_opt.report.document import report_document
from arachne_opt.report.page import SCRIPTS, joined_script, render_page, script_safe_json
from tests.report.subjects import pipeline_subject, two_by_four, with_run

PAGE = resources.files("arachne_opt.report.page")
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028&amp;{{7*7}}"


def source(name):
    return PAGE.joinpath(name).read_text(encoding="utf-8")


class Elements(HTMLParser):
    """Start tags with attributes, and the text inside scripts."""

    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.title = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script":
            self.scripts.append(data)
        if self.tags and self.tags[-1][0] == "title" and not self.title:
            self.title = data


def parsed(html):
    parser = Elements()
    parser.feed(html)
    return parser


def test_all_modules_are_joined_and_whoever_is_needed_comes_first():
    files = {path.name for path in PAGE.iterdir() if path.name.endswith(".js")}
    assert files == set(SCRIPTS)
    seen = {}
    for name in SCRIPTS:
        text = source(name)
        for names, origin in re.findall(r'^import \{([^}]*)\} from "\./([\w.]+)";$', text, re.M):
            for wanted in map(str.strip, names.split(",")):
                assert len(re.findall(rf"\b{wanted}\b", text)) > 1, f"{name} needs no {wanted}"
                exported = rf"^export (?:class|function|const|let) {wanted}\b"
                assert re.search(exported, source(origin), re.M), f"{name} takes {wanted}"
        for declared in re.findall(r"^(?:export )?(?:class|function|const|let) (\w+)", text, re.M):
            assert declared not in seen, f"{declared} is in {name} and in {seen[declared]}"
            seen[declared] = name
    joined = joined_script()
    assert not re.search(r"^(import|export)\b", joined, re.M)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_make_no_markup_from_text_and_call_nobody(name):
    text = source(name)
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in text
    for word in ("fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "import("):
        assert word not in text
    assert len(text.splitlines()) <= 400


def test_the_policy_allows_this_script_and_this_style_alone():
    html = render_page(report_document(two_by_four()))
    (policy,) = [
        a["content"] for t, a in parsed(html).tags if a.get("http-equiv", "").startswith("Content")
    ]
    assert policy.startswith("default-src 'none'")
    script = re.search(r'<script type="module">(.*)</script>', html, re.S)[1]
    style = re.search(r"<style>(.*?)</style>", html, re.S)[1]
    for text in (script, style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_a_page_names_no_other_place():
    html = render_page(report_document(with_run(two_by_four())))
    for tag, attributes in parsed(html).tags:
        for key in ("src", "href", "action", "data", "poster"):
            value = attributes.get(key) or "#"
            assert value.startswith(("#", "data:,")), (tag, key, value)
    assert "@import" not in html
    assert "url(" not in html
    links = set(re.findall(r"https?://[^\s\"'<]+", html))
    assert links == {"http://www.w3.org/2000/svg"}


def hostile():
    subject = two_by_four()
    cascades = tuple(
        replace(c, id=f"{HOSTILE}{i}", label=HOSTILE)
        for i, c in enumerate(subject.problem.cascades)
    )
    nodes = tuple(replace(n, name=f"{HOSTILE}{n.name}") for n in subject.problem.cluster.nodes)
    cluster = replace(subject.problem.cluster, nodes=nodes)
    problem = replace(subject.problem, name=HOSTILE, cluster=cluster, cascades=cascades)
    record = replace(subject.record, name=HOSTILE, cluster_name=HOSTILE, solver=HOSTILE)
    return replace(subject, problem=problem, record=record)


def test_names_never_become_markup():
    html = render_page(report_document(hostile(), hostile(), [HOSTILE]))
    found = parsed(html)
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert sum(tag == "script" for tag, _ in found.tags) == 2
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1]
    document = json.loads(data)
    assert document["views"][0]["title"] == HOSTILE
    assert HOSTILE in document["views"][0]["shapes"]
    assert document["comparison"]["changes"] == [HOSTILE]
    assert "\u2028" not in html.replace(data, "")[: html.index("<script")].split("<title>")[0]


def test_script_safe_json_reads_back_and_has_no_angle():
    value = {"a": HOSTILE, "b": [1, None, "ü"]}
    text = script_safe_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028") & set(text)
    with pytest.raises(ValueError, match="JSON"):
        script_safe_json(float("nan"))


def test_pages_are_whole_for_both_kinds_and_the_same_each_time():
    for subject in (two_by_four(), pipeline_subject()):
        html = render_page(report_document(subject))
        assert html == render_page(report_document(subject))
        assert html.startswith("<!doctype html>")
        assert html.rstrip().endswith("</html>")
        assert "$" not in re.sub(r"<script.*</script>|<style>.*</style>", "", html, flags=re.S)
