"""Language models from checkpoints: load one, generate text, score text.

Built on the public API alone.
"""

from .model import Model, Perplexity, Report, Token, load

__all__ = ["Model", "Perplexity", "Report", "Token", "load"]
