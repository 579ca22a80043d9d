"""For rules and scripts: the plan, the configuration, code digests, command lines.

This package decides which jobs exist and whether they must run again, never what they compute. It
imports the declarations of papers and the standard library, so that reading a Snakefile is quick.
"""
