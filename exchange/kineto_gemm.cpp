#include "exchange/kineto_gemm.h"

#include <algorithm>

namespace moe::exchange {
namespace {

using Dims = std::vector<std::vector<double>>;

// Returns the first of the two factors among the inputs; dims.size(): there is none. Sums come first in addmm and its
// like, outputs and scales last; of other operations, which --map names, the last two matrices are the factors.
size_t first_factor(const LaunchingOp& op) {
  const Dims& dims = op.dims;
  const auto is_matrix = [&](size_t i) { return i < dims.size() && dims[i].size() >= 2; };
  const bool adds = op.name == "aten::addmm" || op.name == "aten::baddbmm" || op.name == "aten::_addmm_activation";
  size_t first = adds ? 1 : 0;
  if (!is_gemm_op(op.name))
    for (size_t i = 0; i + 1 < dims.size(); ++i)
      if (is_matrix(i) && is_matrix(i + 1)) first = i;
  return is_matrix(first) && is_matrix(first + 1) ? first : dims.size();
}

}  // namespace

bool GemmSize::is_thin() const {
  constexpr double kThin = 16;  // rows of a tile of matrix units
  return std::min({m, k, n}) < kThin;
}

std::optional<GemmSize> gemm_size(const LaunchingOp& op) {
  const size_t first = first_factor(op);
  if (first == op.dims.size()) return std::nullopt;
  const auto &a = op.dims[first], &b = op.dims[first + 1];
  GemmSize size{.m = a[a.size() - 2], .k = a.back(), .n = b.back()};
  if (b[b.size() - 2] != size.k) {
    if (b.back() != size.k) return std::nullopt;
    size.n = b[b.size() - 2];  // a weight of (n, k), as linear layers keep it
  }
  // Groups of a 3-D factor share out the rows or columns of the other one.
  const bool is_grouped = op.name.find("grouped_mm") != std::string::npos;
  if (!is_grouped || b.size() > 2)
    for (size_t i = 0; i + 2 < a.size(); ++i) size.batch *= a[i];
  return size.multiplied() > 0 ? std::optional(size) : std::nullopt;
}

}  // namespace moe::exchange
