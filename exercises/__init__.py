"""The assignments and the tools that release and grade them."""
