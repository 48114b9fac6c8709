"""The page a student gets back: `pages` makes it, of `cells` and what the checks said; `text` makes all text."""
