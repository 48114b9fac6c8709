"""Right answers written differently: a check must pass every one of them."""
