from html.parser import HTMLParser

from hkconv.report.render import Bold, Heading, Items, Plot, Table, Text, as_html, as_markdown

BLOCKS = [
    Heading("Results", 1),
    Text("a <b> & *c*"),
    Heading("One | two"),
    Table(("system", "x|y"), (("HKN", Bold("1")), ("", "<script>"))),
    Items(("first\nline", "`second`")),
    Plot("k.svg", (), "the [plot]"),
]


class Reader(HTMLParser):
    """What a browser makes of a page: its elements, its text, and whether they are closed in order."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.text, self.links = [], [], "", []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src", "xlink:href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_markdown_word_for_word():
    assert as_markdown(BLOCKS) == (
        "# Results\n\n"
        "a \\<b> & \\*c\\*\n\n"
        "## One \\| two\n\n"
        "| system | x\\|y |\n| --- | ---: |\n| HKN | **1** |\n|  | \\<script> |\n\n"
        "- first line\n- \\`second\\`\n\n"
        "![the \\[plot\\]](k.svg)\n"
    )


def test_html_is_one_page_that_shows_texts_as_they_are():
    page = as_html(BLOCKS, {"k.svg": "<?xml version='1.0'?>\n<svg><title>k</title></svg>\n"})
    reader = Reader(page)
    assert "a <b> & *c*" in reader.text and "<script>" in reader.text
    assert "script" not in reader.tags and "link" not in reader.tags and "img" not in reader.tags
    assert reader.links == ["#one-two"]
    assert '<h2 id="one-two">' in page
    assert "<strong>1</strong>" in page
    assert "<svg><title>k</title></svg>" in page and "<?xml" not in page
    assert "http" not in page and "@import" not in page and "url(" not in page


def test_a_plot_that_could_not_be_drawn_is_its_description():
    page = as_html(BLOCKS)
    assert "<svg" not in page and "the [plot]" in Reader(page).text
