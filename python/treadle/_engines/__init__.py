"""What the plug-ins of the engines have in common: how trainers and an engine's workers meet, and how an update
goes."""
