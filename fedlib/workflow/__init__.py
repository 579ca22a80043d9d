"""What the rules and scripts ask: the plan, the configuration, code digests, command lines.

It decides which jobs there are and whether they must run again, never what they compute. It
imports the declarations of papers and the standard library, so that reading a Snakefile is quick.
"""
