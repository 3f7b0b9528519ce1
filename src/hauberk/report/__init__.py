"""Cards for people: an HTML file to hand to an auditor, and a table for the terminal.

Importing this room also gives :meth:`hauberk.accounting.Card.to_html` its hand to write with.
"""

from hauberk.accounting.card import hang_html_writer
from hauberk.report.console import card_table
from hauberk.report.html import render, write_report

hang_html_writer(write_report)

__all__ = ["card_table", "render", "write_report"]
