"""deltap: where a language model's internal sense of truth comes from, measured by attention knockout.

The package holds every algorithm of the workflow and knows nothing of Snakemake. Each stage reads the files
of the stages before it and writes its own; ``scripts/`` has one command for each stage.
"""

__version__ = "0.1.0"
