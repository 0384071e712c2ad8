"""What a device is: its name, its memory, and how to wait for it."""
