#pragma once
// Sizes of the GEMM that an operation of PyTorch runs.
#include <optional>

#include "exchange/kineto_events.h"

namespace moe::exchange {

/// (m, k) x (k, n), `batch` times.
struct GemmSize {
  double m = 0, k = 0, n = 0, batch = 1;

  double multiplied() const { return batch * m * k * n; }
  /// True if a matrix is so thin that memory, not arithmetic, takes the time.
  bool is_thin() const;
};

/// Returns the size by the shapes of the operation's inputs; none: they are missing, or are not those of a product.
std::optional<GemmSize> gemm_size(const LaunchingOp& op);

}  // namespace moe::exchange
