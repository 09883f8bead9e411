// The training step of the small convolutional network (batch 512, Adam): how long building, gradients, scheduling and
// running take, and what the schedule is.  train_step [batch] [steps]; DEV=NULL runs nothing.
#include <cstdio>
#include <cstdlib>

#include "base/flags.h"
#include "base/os.h"
#include "engine/jit.h"
#include "engine/realize.h"
#include "runtime/counters.h"
#include "whit/whit.h"

using namespace whit;

namespace {

double ms_since(int64_t start) { return static_cast<double>(os::now_ns() - start) * 1e-6; }

struct Net {
  nn::Conv2d c1{1, 32, 5}, c2{32, 32, 5}, c3{32, 64, 3}, c4{64, 64, 3};
  nn::BatchNorm b1{32}, b2{64};
  nn::Linear l{576, 10};
  void visit(nn::Walk& w) { w("c1", c1), w("c2", c2), w("b1", b1), w("c3", c3), w("c4", c4), w("b2", b2), w("l", l); }
  Tensor operator()(const Tensor& x) {
    Tensor y = b1(c2(c1(x).relu()).relu()).max_pool2d();
    y = b2(c4(c3(y).relu()).relu()).max_pool2d();
    return l(y.flatten(1));
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int64_t batch = argc > 1 ? std::atoll(argv[1]) : 512;
  const int n_steps = argc > 2 ? std::atoi(argv[2]) : 5;
  const FlagScope training("TRAINING", int64_t{1});
  Net net;
  nn::Adam opt(nn::get_parameters(net), {.lr = 1e-3});
  for (auto& [name, t] : nn::get_state_dict(net)) t.realize();
  Tensor x = Tensor::rand({batch, 1, 28, 28}).realize();
  Tensor y = Tensor::randint({batch}, {.low = 0, .high = 10}).realize();
  const auto step = [&](bool look) {
    const int64_t start = os::now_ns();
    opt.zero_grad();
    x.set_grad({});
    Tensor loss = net(x).sparse_categorical_crossentropy(y);
    const double forward = ms_since(start);
    loss.backward();
    x.set_grad({});
    const double backward = ms_since(start);
    std::vector<Tensor> all = opt.schedule_step();
    all.insert(all.begin(), loss);
    const double update = ms_since(start);
    if (look) {
      std::vector<UOp> roots;
      for (const Tensor& t : all) roots.push_back(t.uop());
      // Only the schedule is kept: handles of BUFFERs would be readers of their old states.
      const std::shared_ptr<const Schedule> s = engine::schedule(roots).schedule;
      const double scheduled = ms_since(start);
      if (flag::DEBUG() >= 1) printf("%s", engine::describe(*s).c_str());
      const auto& st = s->stats;
      printf(
          "forward %.2f ms, gradient %.2f, update %.2f, schedule %.2f (%ld nodes, %ld kernels, %ld kernel nodes) | "
          "temporaries %.1f MB in %.1f MB (at least %.1f), outputs %.1f MB\n",
          forward, backward - forward, update - backward, scheduled - update, st.n_tensor_nodes, st.n_kernels, st.n_kernel_nodes,
          static_cast<double>(st.temp_bytes) * 1e-6, static_cast<double>(st.arena_bytes) * 1e-6, static_cast<double>(st.live_bytes) * 1e-6,
          static_cast<double>(st.output_bytes) * 1e-6);
    }
    const int64_t run = os::now_ns();
    Tensor::realize_all(all);
    printf("eager step: build %.2f ms, realize %.2f ms\n", update, ms_since(run));
    return loss;
  };
  step(true);
  step(true);
  engine::Capture capture(std::vector<UOp>{});
  Tensor loss = step(false);
  const auto graph = capture.finish(std::vector<UOp>{loss.uop()});
  loss = Tensor();
  double best = 1e9;
  for (int i = 0; i < n_steps; ++i) {
    const int64_t start = os::now_ns();
    const std::vector<UOp> out = graph->replay({});
    best = std::min(best, ms_since(start));
    if (device_name(out[0]->device) != "NULL") printf("replay %.2f ms, loss %f\n", ms_since(start), Tensor(out[0]).item());
  }
  printf("best replay %.2f ms, %ld kernels, arena %.1f MB\n", best, graph->n_kernels(), static_cast<double>(graph->arena_bytes()) * 1e-6);
  return 0;
}
