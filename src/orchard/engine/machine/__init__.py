"""What an engine takes of this machine and looks after: slots, warm folders, being awake, what could go wrong."""
