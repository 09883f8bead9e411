// Random numbers: threefry2x32 over a counter, one stream a device. The counter is memory of the device that every
// draw advances by assign, so that a captured step draws new numbers at each replay.
#include <mbedtls/sha256.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <mutex>
#include <numbers>

#include "base/flags.h"
#include "schedule/multi.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

struct Stream {
  Tensor key;            // uint32 [2]: hash of the device's number, seed
  Tensor counter;        // uint64 [1]: 32-bit words drawn so far
  size_t number = 0;     // the device's, in the order of use since the seed
  bool is_used = false;  // since the seed
};
struct Streams {
  std::mutex mutex;
  uint64_t seed = static_cast<uint64_t>(std::time(nullptr));
  std::map<std::string, Stream> of_device;
};
Streams& streams() {
  static Streams* const s = new Streams;
  return *s;
}

// Memory stays where it is, so that captured functions see a new seed.
void start(Stream& stream, const std::string& device, size_t number, uint64_t seed) {
  uint8_t big_endian[4], digest[32];
  for (int i = 0; i < 4; ++i) big_endian[i] = static_cast<uint8_t>(number >> (24 - 8 * i));
  WHIT_CHECK(mbedtls_sha256_ret(big_endian, 4, digest, 0) == 0, "no SHA-256 of the number of device {}", device);
  uint32_t hash = 0;
  for (size_t i = 28; i < 32; ++i) hash = hash << 8 | digest[i];
  const Tensor key = Tensor::from<uint32_t>({hash, static_cast<uint32_t>(seed)}, 2, {.device = device});
  const Tensor counter = Tensor::from<uint64_t>({0}, 1, {.device = device});
  if (!stream.key.defined()) {
    stream.key = key.clone();
    stream.counter = counter.clone();
    stream.key.is_param_(false);
    stream.counter.is_param_(false);
  } else {
    stream.key.assign(key);
    stream.counter.assign(counter);
  }
  stream.number = number;
}

int64_t fan_in(const IntList& shape) { return shape.empty() ? 1 : detail::prod(std::span<const int64_t>(shape).subspan(1)); }

void check_float(const char* op, DType dt) { WHIT_USER(is_float(dt) && !is_weak(dt), Value, "[{}] {}; expected a float dtype", op, dt); }

// num random words: threefry of (counter + i, counter + i + half) under the key.
Tensor words(const Tensor& key, const Tensor& counter, int64_t num) {
  const int64_t half = (num + 1) / 2;
  const Tensor low = (counter & Tensor::constant_int(0xffffffff, DType::UInt64)).cast(DType::UInt32);
  const Tensor high = counter >> Tensor::constant_int(32, DType::UInt64);
  const Tensor c0 = Tensor::arange(0, half, 1, DType::UInt32) + low;
  const Tensor c1 = c0 + Tensor::constant_int(half, DType::UInt32);
  const Tensor shift = Tensor::constant_int(32, DType::UInt64);
  const Tensor x = (c1.cast(DType::UInt64) << shift) | c0.cast(DType::UInt64);
  const Tensor k = (key[1].cast(DType::UInt64) << shift) | key[0].cast(DType::UInt64);
  // Past 2^32 words the key changes, so that no block repeats.
  const Tensor k2 = k ^ (high * Tensor::constant_int(static_cast<int64_t>(0x9E3779B97F4A7C15ull), DType::UInt64));
  const Tensor bits = x.threefry(k2);
  const Tensor out = Tensor::cat({bits.cast(DType::UInt32), (bits >> shift).cast(DType::UInt32)});
  return num == 2 * half ? out : out.split({num, 1})[0];
}

Tensor bits_to_rand(const Tensor& bits, DType dt, const IntList& shape) {
  const int64_t n = detail::prod(shape);
  const int bytes = n_bytes(dt), mantissa = info(dt).mantissa_bits;
  const DType u = bytes == 1 ? DType::UInt8 : bytes == 2 ? DType::UInt16 : bytes == 4 ? DType::UInt32 : DType::UInt64;
  Tensor b = bits.bitcast(u);
  if (b.numel() != n) b = b.split({n, b.numel() - n})[0];
  const Tensor one = Tensor::constant(1.0, dt).bitcast(u);
  return (b.rshift(Tensor::constant_int(bytes * 8 - mantissa, u)).bitwise_or(one).bitcast(dt) - Tensor::constant(1.0, dt)).reshape(shape);
}

// Each of several devices keeps its part of random numbers, as it does of y.
Tensor cut_like(const Tensor& x, const Tensor& y) {
  const int64_t axis = shard_axis(y.uop());
  if (axis < 0) return x;
  const auto n = static_cast<int64_t>(y.devices().size());
  return wrap(unshard(shard(x.uop(), axis, n), axis, n)).contiguous();
}
}  // namespace

void Tensor::manual_seed(uint64_t seed) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  s.seed = seed;
  for (auto& [device, stream] : s.of_device) {
    start(stream, device, stream.number, seed);
    stream.is_used = false;
  }
}

std::vector<std::pair<std::string, Tensor>> Tensor::random_state() {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  std::vector<std::pair<std::string, Tensor>> out{{"seed", from<uint64_t>({s.seed})}};
  for (const auto& [device, stream] : s.of_device) {
    if (!stream.is_used) continue;
    out.emplace_back(device + ".number", from<uint64_t>({stream.number}));
    out.emplace_back(device + ".key", stream.key.clone());
    out.emplace_back(device + ".counter", stream.counter.clone());
  }
  return out;
}

void Tensor::set_random_state(std::span<const std::pair<std::string, Tensor>> state) {
  for (const auto& [name, value] : state)
    if (name == "seed") manual_seed(value.to_vector<uint64_t>()[0]);
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  for (const auto& [name, value] : state) {
    if (name == "seed") continue;
    const std::string device = name.substr(0, name.rfind('.'));
    Stream& stream = s.of_device[device];
    if (!stream.key.defined()) start(stream, device, 0, s.seed);
    stream.is_used = true;
    if (name.ends_with(".number")) {
      stream.number = value.to_vector<uint64_t>()[0];
    } else {
      (name.ends_with(".key") ? stream.key : stream.counter).assign(value.to(device)).realize();
    }
  }
}

Tensor Tensor::random_bits(const Tensor& key, const Tensor& counter, int64_t num) { return words(key, counter, num); }

Tensor Tensor::rand(const IntList& shape, const TensorOptions& o) {
  const DType dt = o.dtype.value_or(default_float());
  check_float("rand", dt);
  for (const int64_t d : shape) WHIT_USER(d >= 0, Value, "[rand] negative size in shape {}", dims_str(shape));
  const std::string all = canonical_name(o.device.value_or(""));
  const int64_t n = detail::prod(shape);
  if (n == 0) return zeros(shape, {.device = all, .dtype = dt});
  must_run_kernels(all);
  const std::string dev = all.substr(0, all.find(','));  // draws for the others too
  const int64_t num = (n * n_bytes(dt) + 3) / 4;
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  const auto n_used = static_cast<size_t>(std::ranges::count_if(s.of_device, [](const auto& d) { return d.second.is_used; }));
  Stream& stream = s.of_device[dev];
  if (!stream.is_used && (!stream.key.defined() || stream.number != n_used)) start(stream, dev, n_used, s.seed);
  stream.is_used = true;
  const Tensor step = constant_int(num, DType::UInt64);
  stream.counter.assign(stream.counter + step);
  const Tensor at = stream.counter - step;
  return bits_to_rand(words(stream.key.to(all), at.to(all), num), dt, shape).contiguous();
}

Tensor Tensor::randn(const IntList& shape, const TensorOptions& o) {
  const DType dt = o.dtype.value_or(default_float());
  check_float("randn", dt);
  if (detail::prod(shape) == 0) return zeros(shape, {.device = o.device, .dtype = dt});
  const Tensor u = rand(with_front(2, Dims(shape.begin(), shape.end())), {.device = o.device, .dtype = DType::Float32});
  const Tensor angle = u[0] * (2 * std::numbers::pi), radius = ((Tensor(1.0) - u[1]).log() * -2.0).sqrt();
  return (angle.cos() * radius).cast(dt);
}

Tensor Tensor::uniform(const IntList& shape, double low, double high, const TensorOptions& o) {
  WHIT_USER(low < high || (low == 0 && high == 0), Value, "[uniform] low {} and high {}; expected low < high", low, high);
  const DType dt = o.dtype.value_or(default_float());
  return (rand(shape, {.device = o.device}) * (high - low)).cast(dt) + constant(low, dt);
}

Tensor Tensor::randint(const IntList& shape, const RandintOptions& o) {
  const DType dt = o.dtype.value_or(DType::Int32);
  WHIT_USER(is_int(dt), Type, "[randint] {}; expected an integer dtype", dt);
  WHIT_USER(o.low < o.high, Value, "[randint] low {} and high {}; expected low < high", o.low, o.high);
  const double span = static_cast<double>(o.high) - static_cast<double>(o.low);
  // Rounding may reach the upper end; it belongs to the last value.
  const DType work = span > (1 << 20) ? DType::Float64 : DType::Float32;
  const Tensor r = rand(shape, {.device = o.device, .dtype = work});
  const Tensor k = (r * constant(span, work)).cast(DType::Int64);
  return (k.minimum(constant_int(o.high - o.low - 1, DType::Int64)) + constant_int(o.low, DType::Int64)).cast(dt);
}

Tensor Tensor::normal(const IntList& shape, double mean, double std, const TensorOptions& o) {
  WHIT_USER(std >= 0, Value, "[normal] std {}; expected none below 0", std);
  const Tensor x = randn(shape, o);
  return x * constant(std, x.dtype()) + constant(mean, x.dtype());
}
Tensor Tensor::scaled_uniform(const IntList& shape, const TensorOptions& o) {
  const Tensor x = uniform(shape, -1, 1, o);
  return x * constant(1 / std::sqrt(static_cast<double>(detail::prod(shape))), x.dtype());
}
Tensor Tensor::glorot_uniform(const IntList& shape, const TensorOptions& o) {
  const Tensor x = uniform(shape, -1, 1, o);
  const double n = static_cast<double>((shape.empty() ? 1 : shape[0]) + fan_in(shape));
  return x * constant(std::sqrt(6 / n), x.dtype());
}
Tensor Tensor::kaiming_uniform(const IntList& shape, double a, const TensorOptions& o) {
  const double bound = std::sqrt(3.0) * std::sqrt(2 / (1 + a * a)) / std::sqrt(static_cast<double>(fan_in(shape)));
  return uniform(shape, -bound, bound, o);
}
Tensor Tensor::kaiming_normal(const IntList& shape, double a, const TensorOptions& o) {
  return normal(shape, 0, std::sqrt(2 / (1 + a * a)) / std::sqrt(static_cast<double>(fan_in(shape))), o);
}
Tensor Tensor::randperm(int64_t n, const TensorOptions& o) { return rand(n, {.device = o.device}).argsort().cast(o.dtype.value_or(DType::Int32)); }
Tensor Tensor::rand_like(const TensorOptions& o) const { return cut_like(rand(shape(), like("rand_like", *this, o)), *this); }
Tensor Tensor::randn_like(const TensorOptions& o) const { return cut_like(randn(shape(), like("randn_like", *this, o)), *this); }

Tensor Tensor::multinomial(int64_t num_samples, bool replacement) const {
  WHIT_USER(ndim() == 1 || ndim() == 2, Assertion, "[multinomial] shape {}; expected one or two axes", shape());
  WHIT_USER(num_samples > 0, Assertion, "[multinomial] {} samples; expected a positive number", num_samples);
  const Tensor w = ndim() == 1 ? unsqueeze(0) : *this;
  const int64_t rows = w.shape()[0], n = w.shape()[1];
  Tensor index;
  if (replacement || num_samples == 1) {
    const Tensor f = w.cast(DType::Float32), edges = (f.cumsum(1) / f.sum(1, true)).unsqueeze(1);
    const Tensor u = rand({rows, num_samples, 1}, {.device = home_of(*this)});
    index = u.ge(edges).sum(-1).clamp(0, n - 1);
  } else {
    WHIT_USER(num_samples <= n, Assertion, "[multinomial] {} samples of {} without replacement", num_samples, n);
    // The k largest of log(u) / w: each category once, with the right probabilities.
    const Tensor u = (Tensor(1.0) - rand({rows, n}, {.device = home_of(*this)})).log();
    index = (u / w.cast(DType::Float32)).topk(num_samples).second;
  }
  index = index.cast(DType::Int32);
  return ndim() == 1 ? index.squeeze(0) : index;
}

Tensor Tensor::dropout(double p) const {
  WHIT_USER(0 <= p && p <= 1, Value, "[dropout] p is {}; expected 0..1", p);
  if (!flag::TRAINING() || p == 0) return *this;
  if (p == 1) return const_like(0);
  const Tensor keep = rand(shape(), {.device = home_of(*this), .dtype = DType::Float32}).ge(p).contiguous();
  return keep.where(*this, constant(0.0, dtype())) * (1 / (1 - p));
}

}  // namespace whit
