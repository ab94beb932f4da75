#pragma once
// The verb `list`: prints the available names.

namespace moe::commands {

struct ListOptions {
  bool json = false;
};

int run_list(const ListOptions& options);

}  // namespace moe::commands
