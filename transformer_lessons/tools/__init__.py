"""The `lessons` command, and tools for costs, drawings, attention maps and submitted notebooks."""
