"""Language models: where they come from, how they are asked, and how their activations are read and disturbed."""
