"""The model families: what a checkpoint of each holds, and its graph of public operators."""
