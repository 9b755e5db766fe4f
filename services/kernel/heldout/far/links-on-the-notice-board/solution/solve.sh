#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
from html.parser import HTMLParser


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.open = [], False

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            href = dict(attributes).get("href")
            self.open = href is not None
            if self.open:
                self.found.append([href, ""])

    def handle_endtag(self, tag):
        if tag == "a":
            self.open = False

    def handle_data(self, text):
        if self.open:
            self.found[-1][1] += text


links = Links()
links.feed(open("board.html").read())
with open("links.tsv", "w") as out:
    for href, text in links.found:
        print(href, " ".join(text.split()), sep="\t", file=out)
PY
