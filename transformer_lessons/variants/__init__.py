"""What later chapters build on the canon."""
