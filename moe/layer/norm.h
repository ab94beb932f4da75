#pragma once
// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019) of rows, each with a gain and no bias.
#include <memory>
#include <string_view>

#include "moe/layer/parameter.h"
#include "moe/tensor/math.h"

namespace moe {

class RowNorm {
 public:
  static constexpr double kEpsilon = 1e-5;
  virtual ~RowNorm() = default;
  /// out = gain (x - mean) / sqrt(variance + epsilon), or gain x / sqrt(mean of squares + epsilon); x, out (rows, M).
  virtual void forward(TensorView x, TensorView out) = 0;
  /// In place in d, d_out before and d_x after; the gain's gradient is overwritten. x is the forward's.
  virtual void backward(TensorView x, TensorView d) = 0;
  /// `copies`: Parameter's.
  virtual Parameter gain(int copies) = 0;
};

/// Null for Norm::none.
std::unique_ptr<RowNorm> make_norm(const RankShape& shape, std::string_view gain_name, const LayerSeed& seed,
                                   Math& math = cpu_math());

}  // namespace moe
