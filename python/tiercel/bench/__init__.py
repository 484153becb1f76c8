"""Step time and peak memory of real models on a GPU, plain and under limits: ``python -m tiercel.bench``."""
