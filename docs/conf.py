"""The documentation site: ``make docs`` builds it into build/site, where it works without a server.

Sphinx reads the whole repository, so that a link between two files means the same on the site
and in the repository.  Pages are CommonMark.  A link or an anchor that leads nowhere, or a page
that no table of contents names, is a warning, and ``make docs`` makes each warning an error.
"""

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "Penstock"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "benchmarks/README.md", "benchmarks/results/*.md"]
exclude_patterns = ["README.md", ".*", "build", "dist", "src", "tests", "packaging", "lake"]

myst_heading_anchors = 6

# ``make links`` asks for each address of another site.
linkcheck_ignore = [r"https?://(127\.0\.0\.1|localhost|\[::1\])", r"https?://[^/]*\bexample\b"]
linkcheck_timeout = 20
linkcheck_retries = 3

html_theme = "furo"
html_title = "Penstock"
html_extra_path = ["site"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_show_sphinx = False
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]  # of C#: Pygments does not know ``#:package``


def setup(app: Sphinx) -> None:
    app.add_lexer("hex", TextLexer)
