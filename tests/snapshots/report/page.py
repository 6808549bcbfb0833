"""Reads a page of the report as a browser does, and notes what it must not have."""

from html.parser import HTMLParser

VOID = {"meta", "br", "polyline"}


class Page(HTMLParser):
    """Elements in order, the text, the addresses, and what the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.fetched: list[str] = []
        self.text = ""
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        for name, value in attrs:
            if name in ("src", "href") and not (value or "").startswith("#"):
                self.fetched.append(value or "")
            elif name == "href":
                self.links.add((value or "")[1:])
            elif name == "id":
                self.anchors.add(value or "")
            elif name == "class":
                self.classes |= set((value or "").split())
            assert not name.startswith("on"), (tag, name)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(html: str) -> Page:
    """Check that the page is well formed, stands alone, runs nothing, and that each of its links leads to a place in it."""
    page = Page()
    page.feed(html)
    page.close()
    assert page.open == []
    assert page.fetched == []
    assert "script" not in page.seen
    assert page.links <= page.anchors
    return page
