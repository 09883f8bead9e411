#include "whit/distributed.h"

#include <cstdlib>

#include "base/flags.h"
#include "runtime/device.h"
#include "runtime/mpi/transport.h"
#include "whit/tensor.h"

namespace whit::distributed {

int rank() { return transport() ? transport()->rank() : 0; }
int size() { return transport() ? transport()->size() : 1; }

const std::vector<std::string>& devices() {
  static const std::vector<std::string> all = [] {
    Transport* const t = transport();
    if (!t) return std::vector<std::string>{default_device()};
    const uint64_t own = Tensor::random_state()[0].second.to_vector<uint64_t>()[0];
    uint64_t seed = own;
    t->broadcast(0, &seed, sizeof(seed));
    if (seed != own) Tensor::manual_seed(seed);
    // mpirun may have bound the process to some cores; when not, processes of one machine share what there is.
    const char* const here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    const int64_t n_here = here ? std::max<int64_t>(1, std::atoll(here)) : 1;
    if (!std::getenv("NUM_CPU_THREADS")) set_flag("NUM_CPU_THREADS", std::max<int64_t>(1, flag::NUM_CPU_THREADS() / n_here));
    std::vector<std::string> names;
    for (int i = 0; i < t->size(); ++i) names.push_back(canonical_device("MPI:" + std::to_string(i)));
    return names;
  }();
  return all;
}

void abort(int exit_code) {
  if (transport()) transport()->abort(exit_code);
  std::_Exit(exit_code);
}

}  // namespace whit::distributed
