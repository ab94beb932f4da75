#pragma once
// The verb `model`: what is understood of a model's file.
#include <string>

namespace moe::commands {

struct ModelOptions {
  std::string model;  // NAME or FILE
  bool json = false;
};

int run_model(const ModelOptions& options);

}  // namespace moe::commands
