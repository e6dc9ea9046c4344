"""The ways to hold a model, one module each; what follows the loading does not know which one it was."""
