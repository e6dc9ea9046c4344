"""A Markdown report as a page for browsers: one file that needs nothing else."""

from html import escape

from markdown_it import MarkdownIt

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 75rem; margin: 2rem auto;
       padding: 0 1.5rem; }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0; display: block; overflow-x: auto;
        font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .7rem; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; }
pre { background: #f6f6f6; padding: 1rem; overflow-x: auto; font-size: 12px; }
"""


def page(markdown: str) -> str:
    """Return the HTML of a Markdown text; its first line, a heading, becomes the title. HTML in it is shown as text."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    title = escape(markdown.split("\n", 1)[0].lstrip("# "))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
