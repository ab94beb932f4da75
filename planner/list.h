#pragma once
// The verb `list`: what there is to choose from.

namespace moe::planner {

struct ListOptions {
  bool json = false;
};

int run_list(const ListOptions& options);

}  // namespace moe::planner
