#pragma once
// The verb `list`: what there is to choose from.

namespace moe::commands {

struct ListOptions {
  bool json = false;
};

int run_list(const ListOptions& options);

}  // namespace moe::commands
