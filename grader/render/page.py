"""What the HTML pages share: how templates are filled in, and a policy under which nothing else loads."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from grader.render.prose import plural, points, printable

FOLDER = Path(__file__).parent


def environment() -> Environment:
    """Templates of this folder: every text is escaped, and one that is missing is an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"points": points, "plural": plural, "printable": printable}
    return made


def policy(css: str, script: str | None = None) -> str:
    """A content security policy under which our style and script apply and nothing else runs or loads."""
    ours = f"style-src {_digest(css)}"
    if script is not None:
        ours += f"; script-src {_digest(script)}"
    return f"default-src 'none'; {ours}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
