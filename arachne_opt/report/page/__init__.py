"""The page of a report: one HTML file with its style, script and data inside.

The script is a set of small modules that are joined here: their imports and exports only say who
needs whom, as the joined script is one module. Nothing is loaded when the page is opened, and its
own security policy forbids it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from arachne_opt import __version__

# Whoever is needed comes first.
SCRIPTS = (
    "dom.js",
    "format.js",
    "palette.js",
    "model.js",
    "state.js",
    "paint.js",
    "frame.js",
    "input.js",
    "timeline.js",
    "tip.js",
    "charts.js",
    "cluster.js",
    "table.js",
    "words.js",
    "main.js",
)

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./[\w.]+";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:class|function|const|let) )", re.MULTILINE)


def render_page(document: Mapping[str, Any]) -> str:
    """The whole HTML of a report; every text of the document is escaped for where it stands."""
    views = document["views"]
    style, script = _asset("page.css"), joined_script()
    comparing = len(views) > 1
    kind = views[0]["kind"]
    values = {
        "policy": _policy(style, script),
        "title": html.escape(views[0]["title"]),
        "kicker": html.escape(f"arachne · {kind} plan {views[0]['id'][:12]}"),
        "proof": html.escape(views[0]["headline"]["proof"]),
        "version": html.escape(__version__),
        "compare_link": '<a href="#compare">Compare</a>' if comparing else "",
        "timelines": "\n".join(_timeline(i, v, comparing) for i, v in enumerate(views)),
        "style": style,
        "script": script,
        "data": script_safe_json(document),
    }
    return Template(_asset("page.html")).substitute(values)


def joined_script() -> str:
    """All modules in one, in the order in which they need each other."""
    parts = []
    for name in SCRIPTS:
        text = _EXPORT.sub("", _IMPORT.sub("", _asset(name)))
        parts.append(f"// ---- {name}\n{text}")
    return "\n".join(parts)


def script_safe_json(value: object) -> str:
    """JSON that cannot end the script element that it stands in, whatever its texts are."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _timeline(index: int, view: Mapping[str, Any], comparing: bool) -> str:
    title = ""
    if comparing:
        name = html.escape(f"{'AB'[index]}: {view['title']}, plan {view['id'][:12]}")
        title = f'<h3 class="timeline-title">{name}</h3>'
    return f'{title}<div id="timeline-{index}"></div>'


def _policy(style: str, script: str) -> str:
    """Nothing but this style and this script, and no connection to anywhere."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
