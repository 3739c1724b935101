"""SVG that can stand inside a page: plain elements and attributes, no style, no script, nothing to load.

The report's policy forbids styles that it does not know, so what matplotlib writes as `style` becomes
attributes. What comes from a file is taken only if it holds nothing but what `plain` would have written.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
LARGEST = 2_000_000  # characters; a figure of ours has some 40,000
ELEMENTS = {"svg", "title", "g", "defs", "path", "use", "rect", "clipPath", "pattern"}
ATTRIBUTES = {
    *(
        "id",
        "class",
        "role",
        "version",
        "viewBox",
        "width",
        "height",
        "x",
        "y",
        "d",
        "transform",
        "patternUnits",
    ),
    *("clip-path", "clip-rule", "fill", "fill-opacity", "fill-rule", "opacity", "stroke", "stroke-opacity"),
    *("stroke-width", "stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "stroke-dasharray"),
    *("stroke-dashoffset", "aria-labelledby"),
}
HREF = f"{{{XLINK}}}href"
ELSEWHERE = re.compile(r"url\(\s*(?!#)", re.IGNORECASE)
WITHIN = re.compile(r"url\(#")

ET.register_namespace("", SVG)
ET.register_namespace("xlink", XLINK)


def plain(drawn: str, name: str, title: str) -> str:
    """Reduce matplotlib's SVG to plain elements, its ids beginning with `name`, and give it a title."""
    root = ET.fromstring(drawn)
    for parent in [*root.iter()]:
        for child in [*parent]:
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
        _style_to_attributes(parent)
        _rename(parent, name)
    heading = ET.Element(f"{{{SVG}}}title", {"id": f"{name}-title"})
    heading.text = title
    root.insert(0, heading)
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-title"}
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}  # said by the style that is gone
    return ET.tostring(root, encoding="unicode") + "\n"


def checked(text: str) -> str:
    """The text, if it is one plain SVG figure.

    Raises ValueError with what else it holds.
    """
    if len(text) > LARGEST:
        raise ValueError("it is too large for a figure")
    if "<!" in text or "<?" in text:
        raise ValueError("it declares more than a figure does")
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise ValueError(f"it is no XML: {error}") from error
    for element in root.iter():
        _check(element)
    if root.tag != f"{{{SVG}}}svg":
        raise ValueError("it is no SVG")
    return ET.tostring(root, encoding="unicode")


def _check(element: ET.Element) -> None:
    space, _, tag = element.tag[1:].rpartition("}") if element.tag[:1] == "{" else ("", "", element.tag)
    if space != SVG or tag not in ELEMENTS:
        raise ValueError(f"it has a <{tag}>")
    for attribute, value in element.attrib.items():
        if attribute == HREF and value.startswith("#"):
            continue
        if attribute not in ATTRIBUTES or ELSEWHERE.search(value):
            raise ValueError(f"it has a <{tag}> with `{attribute.rpartition('}')[2]}`")


def _style_to_attributes(element: ET.Element) -> None:
    for declaration in element.attrib.pop("style", "").split(";"):
        attribute, _, value = declaration.partition(":")
        if value:
            element.set(attribute.strip(), value.strip())


def _rename(element: ET.Element, name: str) -> None:
    """Let the ids begin with the figure's name: several figures stand in one page."""
    for attribute, value in element.attrib.items():
        if attribute == "id":
            element.set(attribute, f"{name}-{value}")
        elif attribute == HREF:
            element.set(attribute, value.replace("#", f"#{name}-", 1))
        else:
            element.set(attribute, WITHIN.sub(f"url(#{name}-", value))
