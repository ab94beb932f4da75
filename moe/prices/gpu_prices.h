#pragma once
// Prices of computations in 16-bit types by a model of the hardware, the profile's [gpu]: GEMMs by their shape, in
// waves of tiles; memory traffic by bytes; attention by the measured rates of a kernel.
#include <optional>

#include "moe/plan/plan.h"
#include "moe/prices/price_curve.h"

namespace moe {

/// `groups` products of (m, k) by (k, n) in one kernel. `out_bytes`: memory traffic per element of the result; 8 if the
/// product is added to a float32 sum, which is read and written.
struct GemmShape {
  double m = 0, n = 0, k = 0;
  double groups = 1;
  double out_bytes = 2;
  bool experts = false;  // computed by grouped kernels, as experts are
};

class GpuPrices {
 public:
  /// `gpu` and `shape` must outlive the object.
  GpuPrices(const GpuModel& gpu, const LayerCase& shape) : gpu_(gpu), shape_(shape) {}

  /// Returns the seconds of a product that runs in whole waves of 128 x 128 tiles, one tile per multiprocessor and
  /// wave; at least the seconds to read the factors and write the result.
  double gemm_seconds(const GemmShape& gemm) const;
  /// Returns the seconds to read and write `bytes` bytes in total.
  double traffic_seconds(double bytes) const { return bytes / (gpu_.memory_bytes_per_s * gpu_.memory_share); }
  /// Returns the FLOP/s of attention's kernel, from the row whose head width is nearest by ratio to `head_dim` (of two,
  /// the larger); empty if [gpu] has no rates.
  std::optional<double> attention_rate(int64_t head_dim, Phase phase, double seq) const;

  /// Returns the price of a layer's computation over its FLOPs or bytes; empty for other tasks. `work`: of all rows.
  std::optional<PriceCurve> curve(TaskKind kind, Phase phase, const Work& work) const;
  /// Returns the seconds of attention with the layer's norms, residual sums and rotary positions.
  double attention_seconds(Phase phase) const;
  /// Returns the seconds of attention's scores, at the kernel's rate for `seq` tokens of a sample per call.
  double scores_seconds(Phase phase, double seq) const;
  /// Returns the seconds of the output projection and the loss.
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
