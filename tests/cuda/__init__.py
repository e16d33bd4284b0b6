"""A package, so that its conftest is not taken for that of the folder above."""
