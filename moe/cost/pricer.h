#pragma once
// Prices work on a cluster profile: alpha + n beta (FSMoE section 4.1), or a measured curve inside its range.
#include <array>
#include <set>
#include <string>
#include <vector>

#include "moe/base/check.h"
#include "moe/cost/profile.h"

namespace moe {

/// No row of the profile prices what a case needs; in a grid such a row becomes `unsupported`.
class Unpriced : public BadInput {
  using BadInput::BadInput;
};

struct PricingOptions {
  bool nearest = false;  // borrow the row of the nearest group size where none fits, and mark the result
};

/// Prices the tasks of one layer on one profile. Rows are looked up once, here; the profile must outlive it.
class LayerPricer {
 public:
  /// Throws Unpriced naming op, group size and network that have no row, and the nearest that has one.
  LayerPricer(const Profile& profile, const Case& shape, PricingOptions options = {});
  LayerPricer(Profile&&, const Case&, PricingOptions = {}) = delete;  // it would not outlive the pricer

  const Case& shape() const { return shape_; }
  const Groups& groups() const { return groups_; }
  int64_t rows() const { return rows_; }
  int64_t gradient_bytes() const { return gradient_bytes_; }

  /// Seconds of each class of `structure`, into `seconds` (resized).
  void price(const Structure& structure, const std::vector<GradientSlice>& slices, std::vector<double>& seconds) const;
  /// Seconds of one chunk of `rows` rows; rows may be fractional.
  double chunk_seconds(TaskKind kind, Phase phase, double rows) const;
  double gradient_seconds(int64_t bytes) const;
  double dense_seconds(TaskKind kind, Phase phase) const;
  /// Bytes at which gradient_seconds bends or jumps: the points of a measured curve, ascending.
  std::vector<double> gradient_bends() const;

  /// What a reader must know of the result: "derived: ...", "nearest: ...", "outside the fitted range: ...".
  const std::set<std::string>& notes() const { return notes_; }

 private:
  struct Curve {
    double alpha = 0, beta = 0;      // of one work unit: a byte or a FLOP
    double unit = 0;                 // work units a row of T_rank (chunks) or in all (dense)
    const Points* points = nullptr;  // used inside its range
    double seconds(double work) const;
  };
  Curve comm_curve(Op op, GroupKind group);
  Curve allreduce_curve(const Group& group);
  const CommRow* comm_row(std::string_view op, const Group& group);
  const ComputeRow& gemm_row() const;
  Curve attention_curve(Phase phase);
  Curve expert_curve(Phase phase);
  void note_range(const std::optional<Range>& range, double smallest, double largest, std::string_view op);
  Curve& curve(TaskKind kind, Phase phase) { return curves_[static_cast<size_t>(phase)][static_cast<size_t>(kind)]; }
  const Curve& curve(TaskKind kind, Phase phase) const {
    return curves_[static_cast<size_t>(phase)][static_cast<size_t>(kind)];
  }

  const Profile& profile_;
  Case shape_;
  PricingOptions options_;
  Groups groups_;
  int64_t rows_ = 0, gradient_bytes_ = 0;
  double exact_rows_ = 0;
  std::array<std::array<Curve, kTaskKinds>, 2> curves_;
  std::set<std::string> notes_;
};

/// Seconds of each class of a plan.
std::vector<double> price(const LayerPricer& pricer, const Plan& plan);

}  // namespace moe
