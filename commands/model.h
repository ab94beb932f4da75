#pragma once
// The verb `model`: prints the content of a model's file as moetune reads it.
#include <string>

namespace moe::commands {

struct ModelOptions {
  std::string model;  // NAME or FILE
  bool json = false;
};

int run_model(const ModelOptions& options);

}  // namespace moe::commands
