#pragma once
// Prices of tasks by a cluster profile: alpha + n beta (FSMoE section 4.1), or a measured curve.
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

/// Prices the tasks of one layer by one profile, which must outlive the pricer. A row is looked up when it is first
/// needed. If it is missing, the call throws Unpriced naming op, group size, network and the nearest group size that
/// has a row.
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
  double all_rows() const { return all_rows_; }  // rows that prices and volumes use (planned_rows)
  int64_t gradient_bytes() const { return gradient_bytes_; }
  const RowFinder& rows_of_profile() const { return find_; }
  /// Returns the pricer of a dense layer with the feed-forward width `hidden` and otherwise this layer's case. Each is
  /// created once and has its own notes.
  const LayerPricer& dense(int64_t hidden) const;
  /// Returns the layer's pricer with attention over all tokens; *this if the layer has no window.
  const LayerPricer& whole() const;
  /// Returns the pricer of a pass over one part of the samples (LayerShape::parts).
  const LayerPricer& part(int part) const;
  bool uses_ring() const { return shape().parallel.ring_blocks() > 0; }
  bool has(GroupKind kind) const { return groups()[kind].network != Network::none; }

  /// Sets `seconds` to the seconds of each task of `structure`.
  void price(const Structure& structure, const std::vector<GradientSlice>& slices, std::vector<double>& seconds) const;
  /// Returns the seconds of one chunk of `rows` rows of T_rank; rows may be fractional.
  double chunk_seconds(TaskKind kind, Phase phase, double rows, Flow flow = Flow::sharded) const;
  /// Returns lower bounds on the seconds of `rows` rows, over all cuts into parts of at most `largest` <= rows.
  MinSeconds seconds_in_parts(TaskKind kind, Phase phase, double rows, double largest, Flow flow = Flow::sharded) const;
  double gradient_seconds(int64_t bytes, TaskKind kind = TaskKind::gradient) const;
  /// Returns a lower bound on the total seconds of slices with `bytes` bytes in total, for all ways to cut them.
  double gradient_seconds_in_parts(int64_t bytes) const;
  /// Returns the seconds of a slice; 0 for an empty slice, which has no task.
  double slice_seconds(int64_t bytes) const { return bytes > 0 ? gradient_seconds(bytes) : 0; }
  /// Returns the seconds of a task that is not cut into chunks. If attention recomputes its scores, its backward
  /// includes their FLOPs of the forward.
  double dense_seconds(TaskKind kind, Phase phase, Flow flow = Flow::sharded) const;
  /// Returns the seconds of a task of a model's ends. A collective is priced by its op's row. A computation is priced
  /// by its own row; without one, the output projection as a GEMM, and the embedding's look-up as free.
  double end_seconds(TaskKind kind, Phase phase, const Work& work) const;
  /// Returns the seconds of a task by the GEMM row.
  double gemm_seconds(const Work& gemms) const;
  /// Returns the curve of a collective, from its row or derived (row_finder.h); empty if neither exists.
  std::optional<PriceCurve> collective(Op op, GroupKind kind, double bytes) const;
  /// Returns the measured seconds of Parm's overlapped AlltoAll and MP AllGather (row `saa`); empty if the profile has
  /// no such row.
  std::optional<double> saa_seconds() const;
  /// Returns the bytes at which the slope of gradient_seconds changes, ascending; empty if it is a line.
  std::vector<double> gradient_breakpoints() const;

  /// Returns the notes on all prices so far, such as "derived: ...", "nearest: ...", "outside the measured range: ..."
  /// or "weak row: alltoall inter 8: ...".
  const PriceNotes& notes() const { return find_.notes(); }
  void note(PriceNote note) const { find_.note(std::move(note)); }

 private:
  struct Curve {
    PriceCurve price;
    double unit = 0;  // bytes or FLOPs: of a chunked task per row of T_rank, of others in total
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
  mutable std::map<int64_t, std::shared_ptr<LayerPricer>> dense_;  // by hidden width
  mutable std::shared_ptr<LayerPricer> whole_;
  mutable std::map<int, std::shared_ptr<LayerPricer>> parts_;
};

/// The pricer of each kind of layer in a model; null if the model has no such layer.
using KindPricers = EnumArray<LayerKind, const LayerPricer*, kLayerKinds>;
/// Returns the pricers for the first `layers` layers of a model. `moe`: prices an MoE layer with the window.
KindPricers kind_pricers(const LayerPricer& moe, const DenseLayers& dense, const LayerSet& whole, int layers);

/// Returns the seconds of each task of a plan.
std::vector<double> price(const LayerPricer& pricer, const Plan& plan);

// Prices of the tasks of a step.

/// Returns the seconds of a task of Phase::step. Without a row, a computation takes as long as a copy of its bytes, a
/// collective's price is derived, and if that is not possible, the price is 0 with a note. So a missing row never makes
/// a plan fail.
double step_seconds(const LayerPricer& pricer, TaskKind kind, const Work& work);

}  // namespace moe
