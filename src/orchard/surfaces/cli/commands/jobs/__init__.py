"""Commands about jobs, the workers that do them, and their folders."""
