#!/usr/bin/env bash
# Installs what whit needs on Debian 12 and makes the Python environment .venv. Safe to run again; quick when all is there.
#   ./setup.sh [--quiet]        everything for building and testing
#   ./setup.sh --bench          also .venv-bench with the peers that bench/ compares with: PyTorch, JAX, ONNX Runtime, OpenVINO, tinygrad
#                               (5 GB: PyTorch's package brings CUDA along; the benchmarks use the CPU); OpenBLAS for C++
set -euo pipefail
cd "$(dirname "$0")"
quiet=0 bench=0
for arg in "$@"; do
  case $arg in
    --quiet) quiet=1 ;;
    --bench) bench=1 ;;
    *) echo "usage: ./setup.sh [--quiet] [--bench]" >&2; exit 2 ;;
  esac
done
say() { [ $quiet = 1 ] || echo "$@"; }

packages=(g++ make cmake ninja-build ccache pkg-config git ca-certificates
  llvm-19-dev clang-19 lld-19 clang-format-19
  libboost-dev libfmt-dev nlohmann-json3-dev libcli11-dev libsqlite3-dev libxxhash-dev zlib1g-dev libzstd-dev libzip-dev libpng-dev libmbedtls-dev
  libgtest-dev libgmock-dev libbenchmark-dev libz3-dev
  python3 python3-venv python3-dev dataset-fashion-mnist openmpi-bin)

[ $bench = 0 ] || packages+=(libopenblas0-pthread)

# dpkg-query prints one status a package; a package it does not know is missing too.
missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "setup.sh: not root and no sudo; please install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# make_venv FOLDER PACKAGE...: a stamp with the list makes the second call quick.
make_venv() {
  local folder=$1 stamp=$1/.whit-packages
  shift
  if [ -x "$folder/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null || true)" = "$*" ]; then return; fi
  say "making $folder with $*"
  [ -x "$folder/bin/python" ] || python3 -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
  echo "$*" >"$stamp"
}
make_venv .venv "numpy" "nanobind>=2" "scikit-build-core>=0.10" "pytest" "mypy"
if [ $bench = 1 ]; then
  make_venv .venv-bench "numpy" "torch" "jax" "tinygrad" "onnx" "onnxruntime" "openvino" "matplotlib"
fi
say "whit: set up"
