"""What an engine takes of this machine and looks after: slots, warm folders, wakefulness, and what could go wrong here."""
