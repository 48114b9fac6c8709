"""The `lessons` command and what looks at models and notebooks: costs, drawings, attention maps, submissions."""
