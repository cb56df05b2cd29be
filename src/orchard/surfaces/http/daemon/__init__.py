"""The daemon: the process that keeps repositories open, and what a request has to pass before the API sees it."""
