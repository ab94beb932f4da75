#pragma once
// Lina's packing controller (ATC'23, sections 4.2, 6.1 and 7.1): decides the number of experts per device from times
// that training steps record.

namespace moe {

/// Seconds of one micro-op of the experts, and of one of the AlltoAll, in a forward.
struct MicroOpTimes {
  double expert_s = 0, alltoall_s = 0;
};

/// Returns whether Lina packs twice as many experts: as long as the experts' micro-op is shorter than the AlltoAll's.
inline bool packs_further(const MicroOpTimes& times) { return times.expert_s < times.alltoall_s; }

/// Decides at the 10th training step and at every fourth step after it. Each decision doubles the experts per device or
/// keeps their number; once it is kept, later decisions double it only if the times change.
class PackingController {
 public:
  static constexpr int kFirstStep = 10, kEvery = 4;

  /// `most`: largest number of experts that fit on a device, 1 or more.
  explicit PackingController(int most) : most_(most) {}

  int packing() const { return packing_; }
  /// Returns whether step `step`, counted from 1, is one after which it decides.
  static bool decides(int step) { return step >= kFirstStep && (step - kFirstStep) % kEvery == 0; }
  /// Records a layer's forward of the step that runs.
  void record(const MicroOpTimes& times) {
    sums_.expert_s += times.expert_s;
    sums_.alltoall_s += times.alltoall_s;
  }
  /// Ends step `step`, counted from 1. Decides by the mean of the records since the last decision; without records,
  /// nothing changes. Returns whether experts must move before the next step.
  bool end_step(int step) {
    if (!decides(step)) return false;
    const bool moves = packs_further(sums_) && 2 * packing_ <= most_;  // as many of both: sums compare as means do
    if (moves) packing_ *= 2;
    sums_ = {};
    return moves;
  }

 private:
  int most_, packing_ = 1;
  MicroOpTimes sums_;
};

}  // namespace moe
