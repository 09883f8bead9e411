"""OpenVINO or ONNX Runtime (the argument) on BENCH_THREADS threads (2), on the networks of torch_networks.py, which pass through ONNX."""
import os
import pathlib
import sys
import tempfile

import peer_protocol
import torch
import torch_networks

THREADS = int(os.environ.get("BENCH_THREADS", "2"))


def openvino_model(path):
  import openvino
  core = openvino.Core()
  compiled = core.compile_model(core.read_model(path), "CPU", {
    "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": THREADS})
  return compiled


def onnxruntime_model(path):
  import onnxruntime
  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = THREADS
  session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
  name = session.get_inputs()[0].name
  return lambda given: session.run(None, {name: given})


def inference(load, name, batch):
  network, x = torch_networks.make(name, batch)
  with tempfile.TemporaryDirectory(prefix="whit-bench-") as folder:
    path = str(pathlib.Path(folder) / "network.onnx")
    torch.onnx.export(network, (x,), path, dynamo=False)
    call = load(path)
  given = x.numpy()
  return lambda: call(given)


if __name__ == "__main__":
  title, load, module = {"openvino": ("OpenVINO", openvino_model, "openvino"), "onnxruntime": ("ONNX Runtime", onnxruntime_model, "onnxruntime")}[sys.argv[1]]
  peer_protocol.serve(title, __import__(module).__version__.split("-")[0], {
    f"{name}-{batch}": lambda name=name, batch=batch: inference(load, name, batch) for name in torch_networks.SHAPES for batch in (1, 8)})
