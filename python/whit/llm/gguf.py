"""GGUF files; what whit.nn.state has of them."""
from whit.nn.state import ggml_data_to_tensor, gguf_load  # noqa: F401
from whit.hints import missing


def __getattr__(name: str) -> object: raise missing(__name__, name)
