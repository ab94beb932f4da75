#pragma once
// Prices computations by a model of the hardware, the profile's [gpu]: GEMMs by shape in waves of tiles, memory traffic
// by bytes, attention by the rates of a kernel. Only for 16-bit types.
#include <optional>

#include "moe/plan/plan.h"
#include "moe/prices/price_curve.h"

namespace moe {

/// `groups` products of (m, k) by (k, n) in one kernel. Each element of the results takes `out_bytes` of traffic: 8 for
/// a product that is added to a sum in float32, which is read and written.
struct GemmShape {
  double m = 0, n = 0, k = 0;
  double groups = 1;
  double out_bytes = 2;
  bool experts = false;  // computed by grouped kernels, as experts are
};

class GpuPrices {
 public:
  /// Both arguments must outlive the object.
  GpuPrices(const GpuModel& gpu, const LayerCase& shape) : gpu_(gpu), shape_(shape) {}

  /// Returns the seconds of whole waves of 128 x 128 tiles, one tile per multiprocessor, but at least the seconds to
  /// read the factors and write the results.
  double gemm_seconds(const GemmShape& gemm) const;
  /// Returns the seconds to read and write `bytes` bytes in total.
  double traffic_seconds(double bytes) const { return bytes / (gpu_.memory_bytes_per_s * gpu_.memory_share); }
  /// Returns the FLOP/s of attention's kernel at this head width, from the row whose width is nearest by ratio (the
  /// larger of two); none if there are no rates.
  std::optional<double> attention_rate(int64_t head_dim, Phase phase, double seq) const;

  /// Returns the price of a layer's computation by its FLOPs or bytes (`work`, of all rows); none for any other task.
  std::optional<PriceCurve> curve(TaskKind kind, Phase phase, const Work& work) const;
  /// Returns the seconds of attention with the layer's norms, residual sums and rotary positions.
  double attention_seconds(Phase phase) const;
  /// Returns the seconds of attention's scores, at the rate of a kernel that is called with `seq` tokens of a sample.
  double scores_seconds(Phase phase, double seq) const;
  /// Returns the seconds of the output projection and the loss of its logits.
  double head_seconds(Phase phase, const Work& work) const;

 private:
  double linear_seconds(double rows, double in, double out, Phase phase) const;
  double latent_seconds(Phase phase) const;
  double gate_seconds(Phase phase, double tokens) const;
  double ffn_seconds(Phase phase, double hidden, GemmShape gemm) const;

  const GpuModel& gpu_;
  const LayerCase& shape_;
};

}  // namespace moe
