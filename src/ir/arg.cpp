#include "ir/arg.h"

#include <algorithm>

#include "base/hash.h"
#include "ir/text.h"

namespace whit {

Shape::Shape(std::span<const int64_t> dims, std::span<const Node* const> symbols) {
  if (dims.empty()) return;
  const bool symbolic = std::ranges::any_of(symbols, [](const Node* s) { return s != nullptr; });
  void* p = ::operator new(sizeof(Rep) + dims.size() * sizeof(int64_t) * (symbolic ? 2 : 1));
  rep_ = new (p) Rep{{1}, static_cast<uint32_t>(dims.size()) & 0x7FFFFFFFu, symbolic};
  std::ranges::copy(dims, rep_->dims());
  for (size_t i = 0; symbolic && i < symbols.size(); ++i) rep_->symbols()[i] = UOp(symbols[i]).release();
}

void Shape::release() {
  if (rep_ && rep_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    for (size_t i = 0; rep_->is_symbolic && i < size(); ++i) UOp::adopt(rep_->symbols()[i]);
    rep_->~Rep();
    ::operator delete(rep_);
  }
}

int64_t Shape::numel() const {
  int64_t n = 1;
  bool overflows = false;
  for (const int64_t d : *this) overflows |= __builtin_mul_overflow(n, d, &n);
  WHIT_USER(!overflows || std::find(begin(), end(), 0) != end(), Value, "shape {} has more than 2^63 elements", str());
  return overflows ? 0 : n;
}

bool Shape::operator==(const Shape& o) const {
  if (rep_ == o.rep_) return true;
  if (size() != o.size() || !std::equal(begin(), end(), o.begin())) return false;
  for (size_t i = 0; (is_symbolic() || o.is_symbolic()) && i < size(); ++i)
    if (symbol(i) != o.symbol(i)) return false;
  return true;
}

std::string Shape::str() const {
  std::string s = "(";
  for (size_t i = 0; i < size(); ++i) s += (i ? ", " : "") + (symbol(i) ? to_formula(UOp(symbol(i))) : fmt::format("{}", (*this)[i]));
  return s + (size() == 1 ? ",)" : ")");
}

Arg::Arg(std::string_view text) : kind_(Kind::Str), rep_(new Rep) {
  rep_->text = text;
  rep_->hash = hash128(text).lo;
}

Arg::Arg(std::span<const int64_t> ints) : kind_(Kind::Ints), rep_(new Rep) {
  rep_->ints.append(ints.begin(), ints.end());
  uint64_t h = 0x1234567;
  for (const int64_t v : ints) h = hash_mix(h, static_cast<uint64_t>(v));
  rep_->hash = h;
}

Arg::Arg(std::span<const Arg> list) : kind_(Kind::List), rep_(new Rep) {
  rep_->list = new SmallVec<Arg, 1>(list.begin(), list.end());
  uint64_t h = 0x7654321;
  for (const Arg& a : list) h = hash_mix(h, a.hash());
  rep_->hash = h;
}

void Arg::release() {
  if (!shared() || rep_->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  delete rep_->list;
  delete rep_;
}

std::string_view Arg::as_str() const { return expect(Kind::Str), std::string_view(rep_->text); }
std::span<const int64_t> Arg::as_ints() const { return expect(Kind::Ints), std::span<const int64_t>(rep_->ints); }
std::span<const Arg> Arg::as_list() const { return expect(Kind::List), std::span<const Arg>(*rep_->list); }

Arg Arg::at(size_t i) const {
  if (kind_ == Kind::Ints) return Arg(as_ints()[i]);
  const auto l = as_list();
  WHIT_CHECK(i < l.size(), "arg list has {} elements, asked for number {}", l.size(), i);
  return l[i];
}

int64_t Arg::int_at(size_t i) const {
  if (kind_ == Kind::Ints) {
    WHIT_CHECK(i < rep_->ints.size(), "arg has {} ints, asked for number {}", rep_->ints.size(), i);
    return rep_->ints[i];
  }
  return at(i).as_int();
}

double Arg::to_double() const { return kind_ == Kind::Bool || kind_ == Kind::Int ? static_cast<double>(i_) : as_float(); }

int64_t Arg::to_int() const {
  if (kind_ == Kind::Bool) return i_;
  return kind_ == Kind::Float ? static_cast<int64_t>(f_) : as_int();
}

bool Arg::operator==(const Arg& o) const {
  if (kind_ != o.kind_) return false;
  if (!shared()) return bits() == o.bits();
  if (rep_ == o.rep_) return true;
  if (rep_->hash != o.rep_->hash) return false;
  if (kind_ == Kind::List) return *rep_->list == *o.rep_->list;
  return rep_->text == o.rep_->text && rep_->ints == o.rep_->ints;
}

uint64_t Arg::hash() const {
  const uint64_t k = static_cast<uint64_t>(kind_);
  if (kind_ == Kind::None || kind_ == Kind::Invalid) return k;
  return hash_mix(k, shared() ? rep_->hash : bits());
}

void Arg::append_bytes(std::string& out) const {
  const auto put = [&](uint64_t v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); };
  out.push_back(static_cast<char>(kind_));
  if (kind_ == Kind::Str) {
    put(rep_->text.size());
    out += rep_->text;
  } else if (kind_ == Kind::Ints) {
    put(rep_->ints.size());
    for (const int64_t v : rep_->ints) put(static_cast<uint64_t>(v));
  } else if (kind_ == Kind::List) {
    put(rep_->list->size());
    for (const Arg& a : *rep_->list) a.append_bytes(out);
  } else if (kind_ != Kind::None && kind_ != Kind::Invalid) {
    put(bits());
  }
}

}  // namespace whit
