#pragma once
// Fits measured times to a cluster profile: least squares on t(n) = starts alpha + n beta (FSMoE sections 4.1, 6.2).
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/check.h"
#include "moe/prices/curve_fit.h"
#include "moe/prices/profile.h"
#include "moe/record/record.h"

namespace moe {

/// The backend of cases whose ranks shared a GPU over NCCL: their results are NCCL's, but their times are no network's.
inline constexpr std::string_view kNcclOnOneGpu = "nccl-one-gpu";

/// A sample that the line is not fitted to (curve_fit.h: outliers).
struct SetAside {
  std::string name;  // name of its case
  double size = 0, seconds = 0;
  double expected_s = 0;  // seconds by the line
};

struct LinearFit {
  double alpha_s = 0;
  double beta = 0;            // seconds per byte or FLOP
  double r_squared = 0;       // over all samples, including those set aside
  double r_squared_kept = 0;  // over the samples that are kept
  /// Cross-validation: each size in turn is left out, and a line is fitted to the kept samples of the others. The
  /// errors |predicted - measured| / measured of all samples of that size, those set aside too: their median and
  /// maximum over all samples. Empty if fewer than two sizes are left to fit.
  std::optional<double> held_out_error, held_out_worst;
  Range range{};               // least and most size per start, of kept samples
  bool alpha_clamped = false;  // the least squares gave alpha < 0: fitted again with alpha = 0
  size_t samples = 0;
  std::vector<SetAside> set_aside;   // in the order of their sizes
  std::optional<std::string> weak;   // the limits below that the fit breaks
  Points points;                     // of a collective that a curve predicts clearly better (fit_curve)
  std::optional<double> line_error;  // the line's held-out error if `points` is set; then the others are the curve's
};

/// Limits of a sound fit; a fit beyond one of them is `weak`.
inline constexpr double kMostSetAside = 0.125;       // share of the samples
inline constexpr double kMostHeldOutError = 0.1;     // median over all samples
inline constexpr double kMostHeldOutWorst = 0.5;     // over kept samples
inline constexpr double kLeastRSquaredOfKept = 0.9;  // if the line at least doubles over its range
/// Of repetitions: their interquartile range over their median, in the median over sizes, so that a disturbed
/// repetition or size does not count. Cases of a collective with the same size are repetitions too; those of a
/// computation may have other shapes.
inline constexpr double kMostSpread = 0.4;

/// Samples that no line fits: fewer than two sizes, or times that don't grow with size.
class NoLine : public BadInput {
 public:
  NoLine(std::string_view what, const std::string& why) : BadInput(fmt::format("{}: {}", what, why)), why_(why) {}
  /// Returns the message without its "WHAT: ".
  const std::string& why() const noexcept { return why_; }

 private:
  std::string why_;
};

/// Fits all samples except outliers, which it names, by ordinary least squares, as the papers do. Throws BadInput
/// "WHAT: found ..., expected ..." for sizes or times that are not positive and finite, NoLine if no line fits.
LinearFit fit_linear(std::vector<FitSample> samples, std::string_view what);

/// Replaces the line by a curve of few pieces (curve_fit.h) through the samples that are not set aside, if the line's
/// held-out error exceeds kLineError and the curve's is clearly less. Sets `points`, the errors and the verdict of the
/// fit; alpha and beta become those of least squares of relative errors, for tables. `samples`: those the line was
/// fitted to.
void fit_curve(const std::vector<FitSample>& samples, std::string_view what, LinearFit& fit);
inline constexpr double kLineError = 0.03, kClearlyBelow = 0.8;

/// Returns a fit with the median of the times at any size, for times of a layer's own collectives that no line fits
/// because they have a single size or do not grow with it, as for short tasks of small layers. `weak` says why.
LinearFit fit_without_line(const std::vector<FitSample>& samples, std::string_view why);

struct FittedRow {
  std::string what;  // row_name (profile.h): "alltoall inter 8", "gemm float32", "attention forward 256"
  LinearFit fit;     // of a row that can be used
  std::optional<std::string> unusable;  // why the profile lacks the row
  /// Returns whether the row is neither unusable nor weak.
  bool good() const { return !unusable && !fit.weak; }
};

struct FittedProfile {
  Profile profile;
  std::vector<FittedRow> rows;  // in the order of [[comm]], [[compute]], [[module]], each kind of case
};

/// Merges cases that were measured again (parameters.again_of: the key of the first measurement): the one with the
/// least median is kept, under the key and at the place of the first, because disturbances can only lengthen a time. A
/// wrong case is always kept.
std::vector<CaseRecord> best_attempts(const std::vector<CaseRecord>& cases);

/// Fits one row per kind of case. Cases with a status other than ok are ignored; of cases that were measured again, the
/// best attempt counts. All are of one cluster, emulated or not; those with a network have the same backend, or "none",
/// as imported ones do. A kind of case without a line becomes a row of Profile::unusable. The profile can be read back
/// from its file (profile.h: write_profile) unchanged. The fields that a case must have:
///   parameters.cluster, .nodes, .ranks_per_node   the same in all cases
///   parameters.op                                 a [[comm]] op, "gemm" or "module"
///     a [[comm]] op:  .network ("inter" | "intra"), .ranks (of the group), .bytes (volume as FSMoE counts it:
///                     of an allgather the gathered size), .algorithm (optional, "direct")
///     gemm:           .dtype, .flops (of all its GEMMs), .gemms (optional, 1)
///     slowdown:       .lane, .by ("inter" | "intra" | "compute" | "copy"), and summary.factor: a factor of
///                     [contention], from 1.05 on;  overhead: summary.crossing_s, what [overhead] adds to a task, at
///                     least 0;
///                     overlap: not fitted
///     module:         .name, .phase ("forward" | "backward"), .flops or .bytes (of that phase: modules.h),
///                     .seq (optional)
///     task:           .name, .phase, .dtype, and its terms (terms.h: "call", "flop", ...)
///   summary.median_s: median over iterations of the maximum over ranks; for a task the mean of its chunks' medians
/// Throws BadInput naming the record's file and line and the value, or the name that is no valid profile name.
FittedProfile fit_profile(const std::vector<CaseRecord>& cases, const std::string& name, const std::string& source);
/// Returns the first parameters of such a case: `cluster`, `nodes`, `ranks_per_node` and `op`.
Fields case_parameters(const Profile& cluster, std::string_view op);

/// A warning about a fit. `weak`: about a weak row, which is also named wherever the row prices something.
struct FitWarning {
  std::string text;
  bool weak = false;
};
/// Returns a warning for each row that is weak or unusable, and for the samples that each row set aside.
std::vector<FitWarning> fit_warnings(const FittedProfile& fitted);
/// Returns the number with seven decimals, or with two digits if it is far below 0.
std::string shown_r_squared(double r_squared);

// Fits a [[task]] row to the times of a layer's computations.

struct TermSample {
  TermValues terms{};
  double seconds = 0;
};

/// Fits seconds = s_per . terms with nonnegative s_per by least squares of relative errors, so that short tasks count
/// as much as long ones, and by reweighting, so that a few odd samples do not decide. Sets the row's verdict: the
/// held-out error of a sample is by the others, and `weak` is set if the errors exceed the limits of fit.h or the
/// samples are too few. Throws BadInput for no sample, or for times that are not positive; NoLine if numbers overflow.
void fit_terms(const std::vector<TermSample>& samples, std::string_view what, TaskRow& row);

}  // namespace moe
