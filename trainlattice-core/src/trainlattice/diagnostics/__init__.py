"""Reading YAML with positions, and saying what is wrong with it. Standard library and PyYAML only."""
