#pragma once
// Prices computations by a model of the hardware, the profile's [gpu]: GEMMs by shape in waves of tiles, memory traffic
// by bytes, attention by the rates of a kernel. In 16 bits alone.
#include <optional>

#include "moe/plan/plan.h"
#include "moe/prices/price_curve.h"

namespace moe {

/// `groups` products of (m, k) by (k, n), one kernel. Their results have `out_bytes` an element: 8 where a product is
/// added to a sum in float32, which is read and written.
struct GemmShape {
  double m = 0, n = 0, k = 0;
  double groups = 1;
  double out_bytes = 2;
  bool experts = false;  // as grouped kernels compute it
};

class GpuPrices {
 public:
  /// Both must outlive it.
  GpuPrices(const GpuModel& gpu, const LayerCase& shape) : gpu_(gpu), shape_(shape) {}

  /// Returns the seconds of whole waves of tiles of 128 x 128, a tile a multiprocessor, but no less than it takes to
  /// read the factors and to write the results.
  double gemm_seconds(const GemmShape& gemm) const;
  /// Returns the seconds of reading and writing so many bytes together.
  double traffic_seconds(double bytes) const { return bytes / (gpu_.memory_bytes_per_s * gpu_.memory_share); }
  /// Returns the FLOP/s of attention's kernel at this width of a head, that of the nearest width by ratio (of two the
  /// larger); none without rates.
  std::optional<double> attention_rate(int64_t head_dim, Phase phase, double seq) const;

  /// Returns the price of a layer's computation by its FLOPs or bytes (`work`, of all rows); none of any other task.
  std::optional<PriceCurve> curve(TaskKind kind, Phase phase, const Work& work) const;
  /// Returns the seconds of the output projection and the loss of its logits.
  double head_seconds(Phase phase, const Work& work) const;

 private:
  double linear_seconds(double rows, double in, double out, Phase phase) const;
  double attention_seconds(Phase phase) const;
  double latent_seconds(Phase phase) const;
  double scores_seconds(Phase phase) const;
  double gate_seconds(Phase phase, double tokens) const;
  double ffn_seconds(Phase phase, double hidden, GemmShape gemm) const;

  const GpuModel& gpu_;
  const LayerCase& shape_;
};

}  // namespace moe
