#pragma once
// Lina's packing controller (ATC'23, sections 4.2, 6.1 and 7.1), which chooses the number of experts per device from
// times measured in training steps.

namespace moe {

/// Seconds of one micro-op of the experts and of one micro-op of the AlltoAll in a forward.
struct MicroOpTimes {
  double expert_s = 0, alltoall_s = 0;
};

/// Returns whether Lina doubles the experts per device: if the experts' micro-op is shorter than the AlltoAll's.
inline bool packs_further(const MicroOpTimes& times) { return times.expert_s < times.alltoall_s; }

/// Decides after the 10th training step and after every fourth step from then on. A decision either doubles the number
/// of experts per device or keeps it. After it was kept once, it doubles only if the measured times change.
class PackingController {
 public:
  static constexpr int kFirstStep = 10, kEvery = 4;

  /// `most`: largest number of experts that fit on a device, 1 or more.
  explicit PackingController(int most) : max_(most) {}

  int packing() const { return packing_; }
  /// Returns whether the controller decides after step `step`, counted from 1.
  static bool decides(int step) { return step >= kFirstStep && (step - kFirstStep) % kEvery == 0; }
  /// Records the times of one layer's forward in the current step.
  void record(const MicroOpTimes& times) {
    sums_.expert_s += times.expert_s;
    sums_.alltoall_s += times.alltoall_s;
  }
  /// Ends step `step`, counted from 1. Decides by the mean of the records since the last decision; without records,
  /// nothing changes. Returns whether experts must move before the next step.
  bool end_step(int step) {
    if (!decides(step)) return false;
    // Both sums have equally many terms, so they compare as means do.
    const bool moves = packs_further(sums_) && 2 * packing_ <= max_;
    if (moves) packing_ *= 2;
    sums_ = {};
    return moves;
  }

 private:
  int max_, packing_ = 1;
  MicroOpTimes sums_;
};

}  // namespace moe
