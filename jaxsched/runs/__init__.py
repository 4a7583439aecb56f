"""A run: its settings, the course from them to result files, and what it leaves in its folder."""
