"""What is known about agents, their programs and their models, or found out by asking."""
