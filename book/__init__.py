"""The book and the tools that build it."""
