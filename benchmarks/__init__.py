"""The benchmark: what the pipeline's speed and memory are, beside what people use otherwise (``make bench``)."""
