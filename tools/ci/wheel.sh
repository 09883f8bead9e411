#!/usr/bin/env bash
# wheel.sh PYTHON [PYTHON..]: builds dist/whit-*.whl for the first Python and tries it with each of them, in a fresh environment that has no compiler,
# no LLVM, no NumPy and not this repository: it trains, runs a program written for tinygrad, prints its devices, and passes cases of tests/conformance.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1
work=$(mktemp -d)
build=$work/build clean=$work/clean
trap 'rm -rf "$work"' EXIT
fail() { echo "wheel.sh: $*" >&2; exit 1; }

"$python" -m venv "$build"
"$build/bin/pip" -q install scikit-build-core nanobind abi3audit
mkdir -p dist
# The compiler by the name that other builds call it, so that ccache knows its objects.
CXX=${CXX:-c++} "$build/bin/pip" wheel -q --no-deps --no-build-isolation -w "$work/out" -C cmake.define.WHIT_STATIC=ON -C build-dir="build-{wheel_tag}" .
wheel=$(ls "$work"/out/*.whl)
bytes=$(stat -c %s "$wheel")
[ "$bytes" -le $((25 << 20)) ] || fail "$wheel has $bytes bytes, at most 25 MB are wanted"
if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
  [[ $wheel == *-cp312-abi3-* ]] || fail "$wheel is not for the stable ABI"
  "$build/bin/abi3audit" --strict "$wheel"
fi
files=$(unzip -l "$wheel")
linked=(licenses/{whit,llvm-19-dev,nanobind,robin_map,libstdc++-12-dev,nlohmann-json3-dev,zlib1g-dev}.txt
  licenses/lib{boost1.74,fmt,mbedtls,ncurses,png,sqlite3,xxhash,zstd}-dev.txt)
for file in "${linked[@]}" py.typed _whit.pyi compat.py distributed.py; do
  [[ $files == *"whit/$file"* ]] || fail "$wheel has no $file"
done

cat >"$work/train.py" <<'END'
import sys
from whit import Context, Tensor, TinyJit, nn
assert "numpy" not in sys.modules
Tensor.manual_seed(1)
model = nn.Linear(2, 1)
opt = nn.optim.Adam(nn.state.get_parameters(model), lr=0.1)
x = Tensor.rand(64, 2).realize()
y = (x @ Tensor([3.0, -2.0])).unsqueeze(1).realize()
@TinyJit
@Context(TRAINING=1)
def step():
  opt.zero_grad()
  loss = (model(x) - y).square().mean().backward()
  return loss.realize(*opt.schedule_step())
losses = [step().item() for _ in range(200)]
assert losses[-1] < 1e-3 < losses[0], (losses[0], losses[-1])
from whit import distributed, function, vmap  # one process, as there is no MPI here
assert distributed.size() == 1 and vmap(function(lambda a: (a * 2).sum()))(Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() == [6.0, 14.0]
nn.state.safe_save(nn.state.get_state_dict(model), "w.safetensors")
assert nn.state.safe_load("w.safetensors")["weight"].tolist() == model.weight.tolist()
import whit.nn.onnx
END
cat >"$work/there.py" <<'END'
import sys
from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.helpers import Timing, trange
from tinygrad.nn.state import get_state_dict
@TinyJit
def f(x): return (x @ x.T).softmax().realize()
with Timing("jit: "):
  for i in trange(4, disable=True): out = f(Tensor.full((3, 3), i, dtype=dtypes.float).contiguous().realize())
assert out.shape == (3, 3) and sys.argv[1:] == ["--steps", "3"] and get_state_dict([out])["0"] is out
END
for each in "$@"; do
  rm -rf "$clean"
  "$each" -m venv "$clean"
  "$clean/bin/pip" -q install --no-index "$wheel"
  module=$(echo "$clean"/lib/python3*/site-packages/whit/_whit*.so)
  needs=$(ldd "$module" | awk '{print $1}' | grep -Ev '^(linux-vdso|lib(c|m|dl|rt|pthread)\.so|/lib64/ld-linux)' || true)
  [ -z "$needs" ] || fail "the module needs $needs"
  bare() { (cd "$work" && env -i HOME="$work" PATH="$clean/bin" DEV=CPU:LLVM "$@"); }
  bare python train.py
  bare python -m whit.compat there.py --steps 3 >/dev/null
  bare python -m whit.device | grep -E 'LLVM +PASS' >/dev/null || { bare python -m whit.device; fail "the CPU does not work"; }
  "$clean/bin/pip" -q install numpy
  cp -r tests/conformance "$work/"
  bare python conformance/runner.py --module whit --group matmul --group unary --group autograd --show 2 | tail -1
done
mv "$wheel" dist/
echo "dist/$(basename "$wheel"): $bytes bytes, works with $(for p in "$@"; do "$p" -c 'import sys; print("%d.%d" % sys.version_info[:2], end=" ")'; done)"
