"""Commands about plans: to write, run, list and read them."""
