"""GGUF files; what whit.nn.state has of them."""
from whit.nn.state import ggml_data_to_tensor, gguf_load  # noqa: F401
