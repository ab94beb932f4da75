#pragma once
// `layerbench --against torch`: runs the same layer in PyTorch, through the Python package.
#include <optional>
#include <string>

#include "commands/shared/selection.h"

namespace moe::commands {

struct TorchPeerOptions {
  Selection selection;            // one layer and at most one schedule
  std::optional<int> iterations;  // number of timed rounds; none: the package's default
  int threads = 0;                // CPU threads; 0: torch's default
  std::string out;                // file of the records; empty: results/layerbench-torch.jsonl
};

/// Replaces this process by `python3 -m moetune.torch_bench` with the layer's fields. MOETUNE_PYTHON selects another
/// Python. Throws BadInput for an invalid layer, without the Python package, or without Python.
int run_beside_torch(const TorchPeerOptions& options);

}  // namespace moe::commands
