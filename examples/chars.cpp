// A character transformer: learns to continue a text, with AdamW, clipping and a captured step.
#include <fstream>
#include <iterator>

#include "options.h"

using namespace whit;

namespace {

constexpr int64_t kChars = 128, kContext = 32, kDim = 64, kHeads = 4, kBatch = 8;

struct Block {
  nn::LayerNorm norm1{kDim}, norm2{kDim};
  nn::Linear qkv{kDim, 3 * kDim}, out{kDim, kDim}, up{kDim, 4 * kDim}, down{4 * kDim, kDim};

  /// shapes: x [batch, time, kDim], the result too
  Tensor operator()(const Tensor& x) const {
    const int64_t b = x.size(0), t = x.size(1);
    const auto heads = qkv(norm1(x)).reshape({b, t, 3, kHeads, kDim / kHeads}).permute({2, 0, 3, 1, 4}).chunk(3);
    const Tensor y = heads[0].squeeze(0).scaled_dot_product_attention(heads[1].squeeze(0), heads[2].squeeze(0), {.is_causal = true});
    const Tensor h = x + out(y.transpose(1, 2).reshape({b, t, kDim}));
    return h + down(up(norm2(h)).gelu());
  }
  void visit(nn::Walk& w) { w("norm1", norm1), w("norm2", norm2), w("qkv", qkv), w("out", out), w("up", up), w("down", down); }
};

struct Model {
  nn::Embedding chars{kChars, kDim}, places{kContext, kDim};
  std::vector<Block> blocks = std::vector<Block>(2);
  nn::LayerNorm norm{kDim};
  nn::Linear head{kDim, kChars};

  /// shapes: x [batch, time] of characters -> [batch, time, kChars]
  Tensor operator()(const Tensor& x) const {
    Tensor h = chars(x) + places.weight[Slice{0, x.size(1)}];
    for (const Block& block : blocks) h = block(h);
    return head(norm(h));
  }
  void visit(nn::Walk& w) { w("chars", chars), w("places", places), w("blocks", blocks), w("norm", norm), w("head", head); }
};

// [kBatch, kContext + 1] characters from places that a formula picks.
Tensor batch(const std::string& text, int64_t step) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < kBatch; ++i) {
    const int64_t start = (step * kBatch + i) * 9973 % (static_cast<int64_t>(text.size()) - kContext - 1);
    for (int64_t k = 0; k <= kContext; ++k) out.push_back(static_cast<uint8_t>(text[static_cast<size_t>(start + k)]) % kChars);
  }
  return Tensor::from(out, {kBatch, kContext + 1});
}

void train(Model& model, const Options& o) {
  std::ifstream file(o.text, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  nn::AdamW opt(nn::get_parameters(model), {.lr = 3e-3});
  TinyJit step([&](std::span<const Tensor> in) {
    opt.zero_grad();
    const Tensor x = in[0].get({Ellipsis, Slice{0, kContext}}), y = in[0].get({Ellipsis, Slice{1, kContext + 1}});
    const Tensor loss = model(x).flatten(0, 1).sparse_categorical_crossentropy(y.flatten());
    loss.backward();
    nn::clip_grad_norm_(opt.params, 1.0);
    std::vector<Tensor> all = opt.schedule_step();
    all.push_back(loss);
    Tensor::realize_all(all);
    return std::vector{loss};
  });
  for (int64_t i = 0; i < o.steps; ++i) print_loss(i, step({batch(text, i)})[0]);
}

}  // namespace

int main(int argc, char** argv) { return run_example<Model>(argc, argv, {.steps = 200}, "A character transformer.", train); }
