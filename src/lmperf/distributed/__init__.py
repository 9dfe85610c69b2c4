"""Training on several ranks: strategies, their memory and communication, collectives."""
