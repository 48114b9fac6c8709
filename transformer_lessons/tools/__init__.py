"""The `lessons` command and what looks at models: doctor, costs, plots, attention maps, export for the page."""
