"""Files of language models."""
from whit.hints import missing


def __getattr__(name: str) -> object: raise missing(__name__, name)
