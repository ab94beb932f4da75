#pragma once
// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019) of rows, each with a gain. If a layer has biases,
// its LayerNorm has one too.
#include <memory>
#include <string>
#include <string_view>

#include "moe/layer/part.h"
#include "moe/tensor/math.h"
#include "moe/tensor/tensor.h"

namespace moe {

class RowNorm {
 public:
  static constexpr double kEpsilon = 1e-5;
  virtual ~RowNorm() = default;
  /// Computes out = gain (x - mean) / sqrt(variance + epsilon) + bias (LayerNorm), or gain x / sqrt(mean of squares +
  /// epsilon) (RMSNorm). `x` and `out` are (rows, M).
  virtual void forward(TensorView x, TensorView out) = 0;
  /// Replaces the output's gradient in `d` by the input's gradient, and computes the weights' gradients. `x` is the
  /// forward's input.
  virtual void backward(TensorView x, TensorView d, Into into = Into::overwrite) = 0;
  /// Returns the gain and the bias, with Parameter::copies set to `copies`.
  virtual std::vector<Parameter> parameters(int copies) = 0;
};

/// Returns the name of a weight's gradient in the layer's TensorStore.
std::string gradient_name(std::string_view weight);

/// Fills a norm's gain with normal random numbers of mean 1 and deviation 1/2.
void fill_gain(const Parameter& gain, const LayerSeed& seed, MemorySpace& memory);

/// Makes the layer's norm; null for Norm::none.
std::unique_ptr<RowNorm> make_norm(const PartSetup& setup, std::string_view gain_name);

/// Adds a bias to every row of a matrix and computes its gradient, the sum of rows. Both are matrix products with a
/// column of ones, because every device has matrix products.
class RowBias {
 public:
  RowBias(Math& math, DType dtype) : math_(math), dtype_(dtype) {}
  /// Adds `bias`, which has as many elements as `to` has columns, to every row of `to`. In a batch, Batch::b is the
  /// step of `bias` and Batch::out that of `to`.
  void add(TensorView bias, const Matrix& to, const Batch& batch = {});
  /// Sets d_bias to the sum of d's rows, or adds this sum. In a batch, Batch::b is the step of `d` and Batch::out that
  /// of `d_bias`.
  void gradient(const Matrix& d, TensorView d_bias, Into into, const Batch& batch = {});

 private:
  Matrix ones(int64_t rows);

  Math& math_;
  DType dtype_;
  Tensor ones_;  // (largest number of rows so far, 1)
};

}  // namespace moe
