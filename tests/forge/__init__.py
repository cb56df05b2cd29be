"""Pull requests, on a scripted forge."""
