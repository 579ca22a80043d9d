"""How fast the engine is, measured beside other ways to do the same work: see README.md."""
