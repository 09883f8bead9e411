"""What programs written for tinygrad may look for and whit does not have: each name with the way to do it here."""
from __future__ import annotations

import sys

# By module, then by name ("*" for any other); the text ends the sentence "... is not there: ".
_HINTS = {
  "whit.helpers": {
    "CPU_COUNT": "NUM_CPU_THREADS is the number of threads", "IMAGE": "kernels over images need a GPU, which whit does not have yet",
    "PCONTIG": "fusion is decided by costs; `docs/schedule.md`", "CHECK_OOB": "SPEC=1 verifies graphs", "CHUNK_SIZE": "it belongs to TinyFS, which whit does not have",
    "Metadata": "`track_rewrites(fn)` and PROFILE=1 say where kernels come from", "CAPTURING": "`whit._whit.is_capturing()`", "FLOAT16": "cast to `dtypes.half`",
    "USE_TC": "tensor cores need a GPU, which whit does not have yet", "ALLOW_TF32": "tensor cores need a GPU, which whit does not have yet",
    "DEBUG_RANGEIFY": "`track_rewrites(fn)`, or TRACK_MATCH_STATS=3", "DISALLOW_BROADCAST": "broadcasting is always allowed", "printable": "`repr`", "get_stacktrace": "`traceback`",
    "*": "`whit.helpers` has flags, timing, files, text, numbers and lists",
    "to_be32": "`int.to_bytes(4, 'big')`", "to_be64": "`int.to_bytes(8, 'big')`", "cpu_objdump": "`whit.device.LLVMCompiler().disassemble(lib)`", "BASEDIR": "`whit.__file__`",
    "amdgpu_disassemble": "whit has no AMD device", "fetch_fw": "whit loads no firmware",
  },
  "whit.device": {
    "LRUAllocator": "every Allocator keeps freed memory for reuse (flag LRU)", "MultiBuffer": "a tensor over several devices has one buffer on each",
    "TinyELF": "a kernel's `library` is its object file", "HCQCompiled": "hardware queues are for GPUs, which whit does not have yet",
    "DepsTracker": "the schedule orders kernels; see `whit.schedule`", "BufferSpec": "memory of a device is its Allocator's `_alloc(size)`",
    "ALL_DEVICES": "`python -m whit.device` lists them", "Program": "`whit.device.CPUProgram`, or any callable that a `Compiled` gives as runtime",
    "*": "profiles are `whit.helpers.profile_events()`",
  },
  "whit.engine.realize": {
    "ExecItem": "`whit.schedule.create_schedule(tensors).kernels` lists what runs", "get_kernel": "`whit.codegen.optimize(sink)` gives the optimised kernel",
    "CompiledRunner": "`whit.engine.realize.get_runtime(device, sink)` is callable", "pm_beam": "BEAM is a flag",
    "unwrap_multi": "a call works on one device", "resolve_params": "arguments of a call are buffers by slot",
    "get_program": "`whit.codegen.to_program(sink)`", "*": "kernels are run by the core; `create_schedule`, `compile_linear`, `get_runtime`",
  },
  "whit.engine.jit": {"MultiGraphRunner": "a replay is one list for all devices", "GraphRunner": "a replay is a list of calls in the core",
                      "graph_class": "a replay is a list of calls in the core", "CapturedJit": "a TinyJit keeps its capture inside", "*": "capture and replay are part of the core"},
  "whit.function": {"*": "functions are traced by the core; `@function`"},
  "whit.dtype": {"promo_lattice": "`least_upper_dtype(a, b)`", "*": "`whit.dtype.dtypes` has the dtypes and their groups"},
  "whit.tensor": {"all_tensors": "the core knows them", "is_numpy_ndarray": "`isinstance(x, np.ndarray)`", "*": "tensors become kernels in the core; `whit.schedule.create_schedule(tensors)`"},
  "whit.renderer": {"*": "`whit.renderer.Renderer` is what a renderer derives from"},
  "whit.renderer.cstyle": {**{name: "derive from `whit.renderer.cstyle.CStyle`" for name in ("CStyleLanguage", "ClangRenderer")}, "*": "whit has no device with this language yet; derive from `CStyle`"},
  "whit.nn.state": {"fs_load": "`safe_load(path)`", "fs_store": "`safe_save(tensors, path)`", "accept_filename": "`safe_load` takes paths and tensors", "*": "files are read by the core"},
  "whit.llm.gguf": {"*": "`whit.nn.state.gguf_load(file)`"},
  "whit.nn": {  # of PyTorch
    "Module": "any class with tensors as attributes is a model; `nn.state.get_parameters(model)`", "Parameter": "every tensor attribute of a model trains",
    "Sequential": "`x.sequential([layer, Tensor.relu, ..])`", "ModuleList": "a list", "functional": "functions are methods of Tensor", "init": "`Tensor.kaiming_uniform` ..",
    **{name: f"`x.{fn}()`, in a list of layers `Tensor.{fn}`" for name, fn in {"ReLU": "relu", "GELU": "gelu", "Tanh": "tanh", "Sigmoid": "sigmoid", "SiLU": "silu",
       "Softmax": "softmax", "Dropout": "dropout", "Flatten": "flatten", "MaxPool2d": "max_pool2d", "AvgPool2d": "avg_pool2d"}.items()},
    "LSTM": "`nn.LSTMCell` is a step of it", "Identity": "`lambda x: x`", "BatchNorm1d": "`nn.BatchNorm`", "AdaptiveAvgPool2d": "`x.mean((2, 3))`",
    "MSELoss": "`(x - y).square().mean()`", "L1Loss": "`(x - y).abs().mean()`", "CrossEntropyLoss": "`x.cross_entropy(y)`", "NLLLoss": "`x.nll_loss(y)`",
    "BCELoss": "`x.binary_crossentropy(y)`", "MultiheadAttention": "`q.scaled_dot_product_attention(k, v)`",
  },
  "whit.nn.onnx": {"OnnxPBParser": "`OnnxRunner(model).graph_inputs`, `.graph_values`, `.nodes` are what a file says", "get_onnx_ops": "`whit.nn.onnx.onnx_ops`",
                   "*": "`OnnxRunner(model)`"},
  "whit.schedule.memory": {"*": "the plan is part of the schedule; `memory_plan(schedule)` says what it takes"},
  "whit.schedule": {"schedule_cache": "`whit.schedule.schedule_cache_size()` and `clear_schedule_cache()`",
                    "create_schedule_with_vars": "`create_schedule(tensors)`; variables are bound when it runs",
                    "*": "`create_schedule(tensors)`; its passes are part of the core (`docs/schedule.md`)"},
  "whit.codegen": {"line_rewrite": "`whit.codegen.lower(sink)` gives the LINEAR", "pm_linearize_cleanups": "`whit.codegen.lower(sink)` gives the LINEAR",
                   "do_devectorize": "lanes are vectors of the IR (LANES, VEC) up to the renderer",
                   "*": "the stages are `optimize`, `lower`, `render`, `compile`; their passes are part of the core (`docs/codegen.md`)"},
  "whit.uop": {"*": "`whit.uop.Ops` and `GroupOp` are here, the rest in `whit.uop.ops`"},
  "whit.uop.symbolic": {"*": "`algebra`, `index`, `gate`, `cast` and `symbolic` are the tables of the core (`whit-opt --rules`)"},
  "whit.uop.upat": {"*": "patterns run in the C++ engine; `UPat`, `PatternMatcher`, `graph_rewrite`"},
  "whit.uop.ops": {
    "TrackedPatternMatcher": "`track_rewrites(fn)` records every rewrite", "RewriteTrace": "`track_rewrites(fn)` records every rewrite",
    "upat_interpret": "patterns run in the C++ engine", "deconstruct_function": "patterns run in the C++ engine",
    "ParamArg": "a PARAM's arg is (slot, dims...)", "ProgramInfo": "a PROGRAM's arg is (name, launch extent, scratch bytes, least part, variables...)",
    "rewrite_group": "`track_rewrites(fn)` records every rewrite", "shape_to_shape_arg": "shapes are numbers in a node's arg",
    "sint_to_uop": "`UOp.const(n)`", "range_start": "sources of each op are in docs/ops.md", "consumer_map_from_toposort": "walk `u.toposort()`",
    "match_stats": "TRACK_MATCH_STATS=1 prints them at exit", "TRACK_MATCH_STATS": "TRACK_MATCH_STATS=1 prints which rules fired at exit",
    "*": "docs/python.md says what the IR has from Python",
  },
}
# Modules that are not there.
_MODULES = {
  "nn.torch": "whit is no PyTorch backend; arrays go both ways by dlpack (`Tensor.from_dlpack`, `torch.from_dlpack`)",
  "runtime": "devices are part of the core; `whit.device`", "runtime.graph": "a replay is a list of calls in the core", "runtime.autogen": "whit binds no driver from Python",
  "runtime.ops_amd": "whit has no AMD device yet", "runtime.ops_nv": "whit has no NV device yet", "runtime.ops_cuda": "whit has no CUDA device yet",
  "runtime.ops_metal": "whit has no METAL device yet", "runtime.ops_webgpu": "whit has no WEBGPU device yet", "runtime.ops_cl": "whit has no CL device yet",
  "runtime.ops_qcom": "whit has no QCOM device yet", "runtime.ops_dsp": "whit has no DSP device yet",
  "renderer.ptx": "whit has no CUDA device yet", "renderer.wgsl": "whit has no WEBGPU device yet", "renderer.nir": "whit has no Mesa renderer",
  "viz": "`track_rewrites(fn)` records every rewrite, `print(uop)` shows a graph", "extra": "it is no part of the package; take the file along with the program",
  "uop.spec": "`uop.find_illegal(level)` says what breaks the rules of docs/ir.md", "uop.validate": "the rules are proved by whit's own tests",
  "uop.divandmod": "`whit.uop.symbolic.index` is the table of index arithmetic", "uop.weak": "weak dtypes are resolved by the core",
  "codegen.opt.search": "BEAM is a flag; `whit.codegen.alternatives(sink)` is what it searches", "codegen.opt": "`whit.codegen.optimize(sink)`", "codegen.late": "`whit.codegen.lower(sink)`",
  "codegen.decomp": "a target's missing ops are rules of the core (`whit-opt --rules`: decompose)", "codegen.gpudims": "launches over a grid need a GPU, which whit does not have yet",
  "codegen.simplify": "`whit.uop.symbolic.symbolic`, `UOp.simplify()`", "llm": "whit serves no language models; `nn.state.gguf_load` reads their files", "mixin": "the methods are those of `Tensor` and `UOp`",
  "renderer.llvmir": "`whit.renderer.Renderer('llvm')`", "renderer.isa": "machine code comes from LLVM", "renderer.amd": "whit has no AMD device yet",
  "schedule.allreduce": "sums over devices are part of the core (flags RING, ALL2ALL, TREE)", "uop.movement": "movement ops are methods of `UOp` and `Tensor`", "uop.render": "`UOp.render()`, `print(uop)`",
  "engine.worker": "kernels compile in threads (flag PARALLEL)",
  "schedule.rangeify": "`whit.schedule.create_schedule(tensors)`", "schedule.indexing": "`whit.schedule.create_schedule(tensors)`",
  "schedule.multi": "tensors over several devices are split by the core", "engine.memory": "`whit.schedule.create_schedule(tensors).stats` says what the plan takes",
  "shape": "movement ops are nodes of the graph", "ops": "`whit.uop.ops`", "lazy": "`Tensor.uop` is the graph", "features": "it is gone there too",
  "mlops": "gradients are rules of the core (`docs/adding-an-op.md`)", "graph": "`print(tensor.uop)` shows a graph", "jit": "`whit.engine.jit`",
}


def _text(module: str, name: str) -> str:
  hints = _HINTS.get(module, {})
  known = hints.get(name) or (_MODULES.get(name) if module == "whit" else None) or (hints.get("*") if not name.startswith("_") else None)
  return f"{module}.{name} is not there" + (f": {known}" if known else "")


def missing(module: str, name: str) -> Exception:
  """The error for a name that a module does not have; for its `__getattr__`: an ImportError where it is imported by name.

  >>> print(missing("whit.engine.realize", "CompiledRunner"))
  whit.engine.realize.CompiledRunner is not there: `whit.engine.realize.get_runtime(device, sink)` is callable
  """
  # `from module import name` forgets an AttributeError's text, so that it gets the ImportError at once.
  import opcode
  frame = sys._getframe(2)
  imported = frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == opcode.opmap["IMPORT_FROM"]
  return ImportError(_text(module, name), name=module) if imported else AttributeError(_text(module, name))


def missing_module(name: str) -> ModuleNotFoundError:
  """The error for a module that whit does not have; `name` with its package.

  >>> print(missing_module("tinygrad.lazy"))
  No module named 'tinygrad.lazy': `Tensor.uop` is the graph
  """
  path = name.partition(".")[2]
  known = next((hint for m, hint in _MODULES.items() if path == m or path.startswith(m + ".")), "whit has no such part")
  return ModuleNotFoundError(f"No module named '{name}': {known}", name=name)


class _Finder:
  """Asked last: says why a module of whit is not there."""

  def find_spec(self, name: str, path: object = None, target: object = None) -> None:
    if name.startswith("whit.") and not name.startswith("whit._whit"): raise missing_module(name)
    return None


sys.meta_path.append(_Finder())
