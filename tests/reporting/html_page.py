"""Read the elements and the text of an HTML page."""

from html.parser import HTMLParser


class HtmlPage(HTMLParser):
    """The elements of a page: (name, attributes) in order, the text of each cell, and all text."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.cells: list[str] = []
        self.text = ""
        self._inside: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("td", "th"):
            self.cells.append("")
        if tag in ("td", "th", "script", "style"):
            self._inside = tag

    def handle_endtag(self, tag):
        if tag in ("td", "th", "script", "style"):
            self._inside = None

    def handle_data(self, data):
        self.text += data if self._inside not in ("script", "style") else ""
        if self._inside in ("td", "th"):
            self.cells[-1] += data

    def all(self, name: str) -> list[dict]:
        """The attributes of all elements of this name."""
        return [attributes for tag, attributes in self.elements if tag == name]
