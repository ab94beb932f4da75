#pragma once
// `layerbench --against torch`: the same layer in PyTorch, which the Python package runs.
#include <optional>
#include <string>

#include "commands/shared/selection.h"

namespace moe::commands {

struct TorchPeerOptions {
  Selection selection;            // of one layer, at most one schedule
  std::optional<int> iterations;  // timed rounds; none: the package's default
  int threads = 0;                // 0: torch's default
  std::string out;                // records; empty: results/layerbench-torch.jsonl
};

/// Replaces this process by `python3 -m moetune.torch_bench` with the layer's fields. MOETUNE_PYTHON names another
/// Python. Throws BadInput for a layer that is none, without the Python package, or without Python.
int run_beside_torch(const TorchPeerOptions& options);

}  // namespace moe::commands
