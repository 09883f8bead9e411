// Building, gradient, schedule and codegen of the training step, without the compiler behind codegen: on the device NULL,
// whose compiler passes the source through. One fresh process is one measurement.
#include "../examples/network.h"
#include "engine/realize.h"
#include "report.h"

using namespace whit;
using bench::cpu_s;
using bench::now_s;

int main() {
  const FlagScope flags({{"DEV", std::string("NULL")}, {"TRAINING", int64_t{1}}});
  Tensor images = Tensor::empty({60000, 1, 28, 28}, {.dtype = DType::UInt8}).realize();
  Tensor labels = Tensor::empty(60000, {.dtype = DType::UInt8}).realize();
  Network network;
  nn::Adam optimizer(nn::get_parameters(network), {.lr = 1e-3});
  for (Tensor& t : nn::get_parameters(network)) t.realize();

  const double start = now_s(), cpu = cpu_s();
  const Tensor samples = Tensor::randint({512}, {.low = 0, .high = 60000});
  const Tensor y = labels[samples], logits = network(normalised(images[samples]));
  const Tensor loss = logits.sparse_categorical_crossentropy(y);
  const double built = now_s();
  loss.backward();
  const double gradient = now_s();
  std::vector<Tensor> all{loss, (logits.argmax(1) == y).mean()};
  for (const Tensor& t : optimizer.schedule_step()) all.push_back(t);
  const double updated = now_s();
  {
    std::vector<UOp> roots;
    for (const Tensor& t : all) roots.push_back(t.uop());
    const std::shared_ptr<const Schedule> schedule = engine::schedule(roots).schedule;
    bench::report("kernels_of_the_step", "kernels", static_cast<double>(schedule->stats.n_kernels));
  }
  const double scheduled = now_s();
  Tensor::realize_all(all);
  const double end = now_s(), cpu_end = cpu_s();
  bench::report("all_without_compiler", "ms", (end - start) * 1e3);
  bench::report("all_without_compiler_cpu_time", "ms", (cpu_end - cpu) * 1e3);
  bench::report("forward", "ms", (built - start) * 1e3);
  bench::report("gradient", "ms", (gradient - built) * 1e3);
  bench::report("optimizer", "ms", (updated - gradient) * 1e3);
  bench::report("schedule", "ms", (scheduled - updated) * 1e3);
  bench::report("codegen_and_binding", "ms", (end - scheduled) * 1e3);
}
