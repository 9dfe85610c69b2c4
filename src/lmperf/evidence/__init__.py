"""Evidence: rows and their keys, where they are kept, what is missing, and what they are worth."""
