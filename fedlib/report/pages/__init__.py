"""What a reader opens at the end: the report page, and event files for TensorBoard.

It puts together what exhibits, tables and figures made, and computes nothing of its own.
"""
