"""Tables: a module for each kind, whose `build(given)` makes the `Sheet`."""
