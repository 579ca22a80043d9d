"""What a reader opens at the end: the report, in Markdown and for a browser.

It puts together what exhibits, tables and figures made, and computes nothing of its own.
"""
