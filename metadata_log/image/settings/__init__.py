"""Settings in an image: configs, definitions of config keys, and labels."""
