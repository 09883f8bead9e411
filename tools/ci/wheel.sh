#!/usr/bin/env bash
# wheel.sh PYTHON: builds dist/whit-*.whl for this Python and tries it in a fresh environment without compiler, LLVM or NumPy.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/build"
"$work/build/bin/pip" -q install scikit-build-core nanobind
mkdir -p dist
# The compiler by the name that other builds call it, so that ccache knows its objects.
CXX=${CXX:-c++} "$work/build/bin/pip" wheel -q --no-deps --no-build-isolation -w "$work/out" -C cmake.define.WHIT_STATIC=ON -C build-dir="build-{wheel_tag}" .
wheel=$(ls "$work"/out/*.whl)
bytes=$(stat -c %s "$wheel")
[ "$bytes" -le $((25 << 20)) ] || { echo "wheel.sh: $wheel has $bytes bytes, at most 25 MB are wanted" >&2; exit 1; }

"$python" -m venv "$work/clean"
"$work/clean/bin/pip" -q install "$wheel"
needs=$(ldd "$work/clean/lib/"python3*/site-packages/whit/_whit*.so | awk '{print $1}' | grep -Ev '^(linux-vdso|lib(c|m|dl|rt|pthread)\.so|/lib64/ld-linux)' || true)
[ -z "$needs" ] || { echo "wheel.sh: the module needs $needs" >&2; exit 1; }
(cd "$work" && env -i HOME="$work" DEV=CPU:LLVM "$work/clean/bin/python" -c '
from whit import Tensor, TinyJit, nn
x = Tensor.rand(4, 8).realize()
step = TinyJit(lambda x: (x @ x.T).softmax().sum().realize())
values = [step(x).item() for _ in range(3)]
assert max(abs(v - 4) for v in values) < 1e-5, values
import sys
assert "numpy" not in sys.modules
')
mv "$wheel" dist/
echo "dist/$(basename "$wheel"): $bytes bytes, works in an environment of its own"
