#pragma once
// Prices work on a cluster profile: alpha + n beta (FSMoE section 4.1), or a measured curve.
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/prices/gpu_prices.h"
#include "moe/prices/row_finder.h"
#include "moe/shape/dense_layers.h"

namespace moe {

/// Prices the tasks of one layer on one profile; the profile must outlive the pricer. Rows are looked up once, when
/// first needed. If a needed row is missing, the call throws Unpriced naming op, group size and network, and the
/// nearest group size that has a row.
class LayerPricer {
 public:
  LayerPricer(const Profile& profile, const LayerCase& shape, PricingOptions options = {});
  LayerPricer(Profile&&, const LayerCase&, PricingOptions = {}) = delete;  // the profile would not outlive the pricer

  const Profile& profile() const { return find_.profile(); }
  const LayerCase& shape() const { return find_.shape(); }
  const PricingOptions& options() const { return find_.options(); }
  const Groups& groups() const { return outline_.groups; }
  const LayerOutline& outline() const { return outline_; }
  int64_t rows() const { return rows_; }         // padded rows, T_rank
  double all_rows() const { return all_rows_; }  // the rows that plans count (planned_rows)
  int64_t gradient_bytes() const { return gradient_bytes_; }
  const RowFinder& rows_of_profile() const { return find_; }
  /// Returns the pricer of a dense layer, with a feed-forward of width `hidden`, instead of this layer. It is created
  /// once and has notes of its own.
  const LayerPricer& dense(int64_t hidden) const;
  /// Returns the pricer of the layer with attention over all tokens: itself if the layer has no window.
  const LayerPricer& whole() const;
  /// Returns the pricer of a pass over one part of the samples, also created once.
  const LayerPricer& part(int part) const;
  bool in_ring() const { return shape().parallel.ring_blocks() > 0; }
  bool has(GroupKind kind) const { return groups()[kind].network != Network::none; }

  /// Writes the seconds of each task of `structure` into `seconds` (resized).
  void price(const Structure& structure, const std::vector<GradientSlice>& slices, std::vector<double>& seconds) const;
  /// Returns the seconds of one chunk of `rows` rows of T_rank; rows may be fractional.
  double chunk_seconds(TaskKind kind, Phase phase, double rows, Flow flow = Flow::sharded) const;
  /// Returns the least seconds of `rows` rows over all ways to cut them into parts of at most `largest` <= rows.
  LeastSeconds in_parts(TaskKind kind, Phase phase, double rows, double largest, Flow flow = Flow::sharded) const;
  double gradient_seconds(int64_t bytes, TaskKind kind = TaskKind::gradient) const;
  /// Returns the least seconds of slices of `bytes` bytes in total, however they are cut.
  double gradient_seconds_in_parts(int64_t bytes) const;
  /// Returns the seconds of a slice; 0 for a slice without bytes, which has no task.
  double slice_seconds(int64_t bytes) const { return bytes > 0 ? gradient_seconds(bytes) : 0; }
  /// Returns the seconds of a task that is not cut into chunks. The backward of attention that recomputes its scores
  /// includes their share of the forward's FLOPs.
  double dense_seconds(TaskKind kind, Phase phase, Flow flow = Flow::sharded) const;
  /// Returns the seconds of one of a model's ends: by its own row; otherwise the output projection's by GEMMs, and none
  /// for a look-up of tokens. A collective of an end is priced by its op's row.
  double end_seconds(TaskKind kind, Phase phase, const Work& work) const;
  /// Returns the seconds of a task of GEMMs by the GEMM row.
  double gemm_seconds(const Work& gemms) const;
  /// Returns the curve of a collective, from its row or derived (row_finder.h); none if it has no price.
  std::optional<PriceCurve> collective(Op op, GroupKind kind, double bytes) const;
  /// Returns the seconds of Parm's overlapped AlltoAll and MP AllGather as measured (row `saa`); none if the profile
  /// has no such row.
  std::optional<double> saa_seconds() const;
  /// Returns the bytes at which the slope of gradient_seconds changes, ascending; none if it is a line.
  std::vector<double> gradient_bends() const;

  /// Returns the notes on the prices so far: "derived: ...", "nearest: ...", "outside the measured range: ...", "weak
  /// row: alltoall inter 8: ..." for prices from a row whose fit is beyond its limits.
  const PriceNotes& notes() const { return find_.notes(); }
  void note(PriceNote note) const { find_.note(std::move(note)); }

 private:
  struct Curve {
    PriceCurve price;
    double unit = 0;  // work units per row of T_rank (chunks) or in total (dense)
    bool known = false;
  };
  const Curve& curve(Flow flow, TaskKind kind, Phase phase) const;
  PriceCurve find_curve(TaskKind kind, Phase phase, const Work& work, Flow flow) const;
  PriceCurve whole_curve(TaskKind kind, Phase phase, const Work& work, Flow flow) const;
  bool shares_attention(TaskKind kind) const;
  PriceCurve comm_curve(Op op, GroupKind kind, double bytes) const;
  void add_hook(PriceCurve& exchange, TaskKind kind, Phase phase) const;
  bool adds_scores(TaskKind kind) const;
  PriceCurve task_curve(const TaskRow& row, TaskKind kind, const Work& work, Flow flow) const;
  PriceCurve compute_curve(TaskKind kind, Phase phase, const Work& work) const;
  PriceCurve part_curve(TaskKind kind, Phase phase, const Work& part, Flow flow) const;
  std::optional<double> modelled_ring_seconds(TaskKind kind, Phase phase, double share) const;
  PriceCurve copy_curve() const;
  PriceCurve host_copy_curve() const;
  std::optional<GpuPrices> gpu_prices() const;
  double part_seconds(const Task& task, Flow flow, int more) const;

  RowFinder find_;
  LayerOutline outline_;
  int64_t rows_ = 0, gradient_bytes_ = 0;
  double all_rows_ = 0;
  mutable EnumArray<Flow, EnumArray<Phase, EnumArray<TaskKind, Curve, kTaskKinds>, kPhases>, kFlows> curves_;
  mutable std::map<int64_t, std::shared_ptr<LayerPricer>> dense_;  // by width
  mutable std::shared_ptr<LayerPricer> whole_;
  mutable std::map<int, std::shared_ptr<LayerPricer>> parts_;
};

/// The pricers of a model's kinds of layers; null: the model has no such layer.
using KindPricers = EnumArray<LayerKind, const LayerPricer*, kLayerKinds>;
/// Returns those of the first `layers` layers, made from `moe`, which prices an MoE layer with the window.
KindPricers kind_pricers(const LayerPricer& moe, const DenseLayers& dense, const LayerSet& whole, int layers);

/// Returns the seconds of each task of a plan.
std::vector<double> price(const LayerPricer& pricer, const Plan& plan);

// Prices the tasks of a step.

/// Returns the seconds of a task of Phase::step by the pricer's rows. A price without a row is derived, or 0 with a
/// note, so a step refuses no plan. A computation without a row takes as long as a copy of its bytes.
double step_seconds(const LayerPricer& pricer, TaskKind kind, const Work& work);

}  // namespace moe
