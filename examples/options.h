// The command line of the examples.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/flags.h"
#include "whit/whit.h"

namespace whit {

struct Options {
  int64_t steps;
  std::string save = {}, weights = {}, text = "docs/ir.md";
};

/// Parses the options, makes the model, saves or loads the weights it begins with, and trains it.
template <class Model, class Train> int run_example(int argc, char** argv, Options o, const char* about, const Train& train) {
  CLI::App app{about};
  app.add_option("--steps", o.steps, "steps of training")->capture_default_str();
  app.add_option("--save", o.save, "a safetensors file for the weights it begins with");
  app.add_option("--weights", o.weights, "a safetensors file with the weights to begin with");
  app.add_option("--text", o.text, "what the transformer reads")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    Tensor::manual_seed(1);
    Model model;
    if (!o.save.empty()) nn::safe_save(nn::get_state_dict(model), o.save);
    if (!o.weights.empty()) nn::load_state_dict(model, nn::safe_load(o.weights));
    const FlagScope training("TRAINING", int64_t{1});
    train(model, o);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

inline void print_loss(int64_t step, const Tensor& loss) { std::printf("%lld %.6e\n", static_cast<long long>(step), loss.item()); }

}  // namespace whit
