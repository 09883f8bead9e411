"""OpenVINO on BENCH_THREADS threads (2), on the networks of torch_networks.py, which pass through ONNX."""
import os
import pathlib
import tempfile

import peer_protocol
import openvino
import torch
import torch_networks


def inference(name, batch):
  network, x = torch_networks.make(name, batch)
  with tempfile.TemporaryDirectory(prefix="whit-bench-") as folder:
    path = pathlib.Path(folder) / "network.onnx"
    torch.onnx.export(network, (x,), str(path), dynamo=False)
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {
      "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": int(os.environ.get("BENCH_THREADS", "2"))})
  given = x.numpy()
  return lambda: compiled(given)


if __name__ == "__main__":
  peer_protocol.serve("OpenVINO", openvino.__version__.split("-")[0], {
    f"{name}-{batch}": lambda name=name, batch=batch: inference(name, batch) for name in torch_networks.SHAPES for batch in (1, 8)})
