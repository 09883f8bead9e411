// Keccak and the hash made of it, as graphs of shifts and exclusive ors.
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

constexpr int64_t kLanes = 25, kChunk = 1 << 20;  // 64-bit words of a state; bytes of a leaf of the tree
// What rounds read from memory: so all rounds of all blocks are one kernel.
struct RoundData {
  std::vector<Tensor> constants;  // uint64 [1] a round
  Tensor from, left, right;       // by lane: which lane comes here, its rotation to the left, 63 minus that
};

RoundData round_data(const TensorOptions& where) {
  RoundData out;
  // Bits 2^j - 1 of a round's constant come from a shift register, one after another.
  for (uint64_t round = 0, bits = 1; round < 24; ++round) {
    uint64_t c = 0;
    for (int j = 0; j < 7; ++j, bits = (bits << 1) ^ (bits >> 7) * 0x171) c |= (bits & 1) << ((1 << j) - 1);
    out.constants.push_back(Tensor::from<uint64_t>({c}, 1, where));
  }
  // Lane (x, y) goes to (y, 2x + 3y); the walk that starts at (1, 0) also counts the rotations up.
  std::vector<int32_t> from(kLanes, 0);
  std::vector<uint64_t> left(kLanes, 0), right(kLanes, 63);
  size_t x = 1, y = 0;
  for (uint64_t t = 1, rotation = 0; t < kLanes; ++t) {
    rotation = (rotation + t) % 64;
    const size_t source = x + 5 * y, next_y = (2 * x + 3 * y) % 5;
    x = y;
    y = next_y;
    from[x + 5 * y] = static_cast<int32_t>(source);
    left[x + 5 * y] = rotation;
    right[x + 5 * y] = 63 - rotation;
  }
  out.from = Tensor::from(from, kLanes, where);
  out.left = Tensor::from(left, {kLanes, 1}, where);
  out.right = Tensor::from(right, {kLanes, 1}, where);
  return out;
}

// state: uint64 [lane, message]
Tensor permute_state(Tensor state, const RoundData& d) {
  const int64_t n = state.shape()[1];
  for (const Tensor& constant : d.constants) {
    const Tensor s = state.reshape({5, 5, n});
    const Tensor c = s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4], next = c.roll(-1, 0);
    const Tensor mixed = (s ^ c.roll(1, 0) ^ (next << 1) ^ (next >> 63)).reshape({kLanes, n})[d.from];
    const Tensor b = ((mixed << d.left) | ((mixed >> 1) >> d.right)).reshape({5, 5, n});
    const Tensor mask = constant.reshape({1, 1}).pad({0, 0, 0, kLanes - 1});
    state = ((b ^ (~b.roll(-1, 1) & b.roll(-2, 1))).reshape({kLanes, n}) ^ mask).contiguous();
  }
  return state;
}

Tensor bytes_of(const Tensor& x) { return x.dtype() == DType::UInt8 ? x : x.bitcast(DType::UInt8); }

// [n, kChunk] to [n, 16]: pieces of 4096 bytes, then their hashes.
Tensor hash_chunks(const Tensor& x) { return x.reshape({-1, 4096}).keccak("shake_128").reshape({x.shape()[0], 4096}).keccak("shake_128"); }

}  // namespace

Tensor Tensor::keccak(std::string_view cfg) const {
  if (cfg == "sha3_224") return keccak(144, 6);
  if (cfg == "sha3_256") return keccak(136, 6);
  WHIT_USER(cfg == "shake_128", Key, "[keccak] '{}'; expected sha3_224, sha3_256, shake_128 or (rate, suffix)", cfg);
  return keccak(168, 31);
}

Tensor Tensor::keccak(int64_t rate, int64_t suffix) const {
  WHIT_USER(rate % 8 == 0 && 0 < rate && rate < 200, Value, "[keccak] rate {}; expected a multiple of 8 below 200", rate);
  WHIT_USER(0 <= suffix && suffix < 128, Value, "[keccak] suffix {}; expected 0..127", suffix);
  WHIT_USER(ndim() > 0, Index, "[keccak] a tensor without axes; expected bytes along the last one");
  const Tensor data = bytes_of(*this);
  const int64_t n = data.shape().back(), n_blocks = n / rate + 1, rows = n == 0 ? 1 : data.numel() / n;
  Dims out(shape().begin(), shape().end());
  out.back() = (200 - rate) / 2;
  WHIT_USER(n != 0 || detail::prod(out) == out.back(), Value, "[keccak] several empty messages, shape {}", shape());
  if (rows == 0) return full(out, constant_int(0, DType::UInt8), {.dtype = DType::UInt8, .buffer = false});
  const auto mark = [&](int64_t at, int64_t value) {
    return arange(0, n_blocks * rate).eq(at).where(constant_int(value, DType::UInt8), constant_int(0, DType::UInt8));
  };
  const Tensor padded = data.reshape({rows, n}).pad({0, n_blocks * rate - n}) ^ mark(n, suffix) ^ mark(n_blocks * rate - 1, 128);
  const Tensor blocks =
      padded.reshape({rows, n_blocks, rate}).contiguous().bitcast(DType::UInt64).pad({0, kLanes - rate / 8}).permute({1, 2, 0}).contiguous();
  const RoundData d = round_data({.device = home_of(*this)});
  Tensor state;
  for (int64_t k = 0; k < n_blocks; ++k) {
    const Tensor block = blocks[k];
    state = permute_state((state.defined() ? state ^ block : block).contiguous(), d);
  }
  const Tensor result = state.transpose(0, 1).contiguous().bitcast(DType::UInt8);
  return result.split({out.back(), 200 - out.back()}, 1)[0].reshape(out);
}

Tensor Tensor::hash() const {
  Tensor data = bytes_of(flatten());
  const auto whole = [](const Tensor& x) {
    const int64_t n = x.numel(), chunks = std::max<int64_t>(1, (n + kChunk - 1) / kChunk);
    return x.pad({0, chunks * kChunk - n}).reshape({chunks, kChunk});
  };
  while (data.numel() > kChunk) data = hash_chunks(whole(data)).flatten();
  return hash_chunks(whole(data)).flatten();
}

}  // namespace whit
