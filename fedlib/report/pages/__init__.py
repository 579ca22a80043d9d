"""The report, in Markdown and for a browser.

It assembles the results of tables and figures, and computes nothing itself.
"""
