#pragma once
// The fit of a cluster profile to measured times, by least squares: t(n) = starts alpha + n beta (FSMoE sections 4.1,
// 6.2).
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/check.h"
#include "moe/prices/curve_fit.h"
#include "moe/prices/profile.h"
#include "moe/record/record.h"

namespace moe {

/// The backend of cases whose ranks shared one GPU over NCCL. Their results are correct, but their times say nothing
/// about a network.
inline constexpr std::string_view kNcclOnOneGpu = "nccl-one-gpu";

/// A sample that the fit ignores because it is an outlier (outliers() in curve_fit.h).
struct SetAsideSample {
  std::string name;  // name of its case
  double size = 0, seconds = 0;
  double expected_s = 0;  // seconds that the fitted line predicts
};

struct LinearFit {
  double alpha_s = 0;
  double beta = 0;            // seconds per byte or FLOP
  double r_squared = 0;       // over all samples, including those set aside
  double r_squared_kept = 0;  // over the samples that are kept
  /// Median and maximum of the cross-validation errors |predicted - measured| / measured over all samples, including
  /// those set aside. Each size in turn is left out, and a line is fitted to the kept samples of the other sizes. Empty
  /// if fewer than two sizes are left to fit.
  std::optional<double> held_out_error, held_out_worst;
  Range range{};               // smallest and largest size per start of kept samples
  bool alpha_clamped = false;  // the first fit had alpha < 0, so it was repeated with alpha = 0
  size_t samples = 0;
  std::vector<SetAsideSample> set_aside;  // in the order of their sizes
  std::optional<std::string> weak;        // the limits below that the fit exceeds; empty if none
  /// Measured curve of a collective, if it predicts clearly better than the line (fit_curve).
  Points points;
  /// Held-out error of the line if `points` is set; the errors above are then the curve's.
  std::optional<double> line_error;
};

/// Limits of a good fit; a fit that exceeds one of them is `weak`.
inline constexpr double kMaxSetAside = 0.125;      // share of the samples
inline constexpr double kMaxHeldOutError = 0.1;    // of the median error over all samples
inline constexpr double kMaxHeldOutWorst = 0.5;    // of the largest error of kept samples
inline constexpr double kMinRSquaredOfKept = 0.9;  // if the line at least doubles over its range
/// Limit of the spread of repetitions: interquartile range over median, then the median over all sizes, so that single
/// disturbed repetitions or sizes do not count. Cases of a collective with the same size count as repetitions; cases of
/// a computation do not, because their shapes may differ.
inline constexpr double kMaxSpread = 0.4;

/// The error for samples that no line fits: they have fewer than two sizes, or times that don't grow with size.
class FitError : public BadInput {
 public:
  FitError(std::string_view what, const std::string& why) : BadInput(fmt::format("{}: {}", what, why)), why_(why) {}
  /// Returns the message without its "WHAT: ".
  const std::string& why() const noexcept { return why_; }

 private:
  std::string why_;
};

/// Fits a line to all samples except outliers (LinearFit::set_aside) by ordinary least squares, as the papers do.
/// Throws BadInput "WHAT: found ..., expected ..." for sizes or times that are not positive and finite, FitError if no
/// line fits.
LinearFit fit_linear(std::vector<FitSample> samples, std::string_view what);

/// Replaces the line of `fit` by a curve of few pieces (curve_fit.h) if the line's held-out error exceeds kLineError
/// and the curve's is less than kClearlyBelow of it. Sets `points`, the errors and the verdict of the fit; alpha and
/// beta become those of relative least squares, for display in tables. `samples`: the samples of fit_linear(); those
/// set aside are ignored.
void fit_curve(const std::vector<FitSample>& samples, std::string_view what, LinearFit& fit);
inline constexpr double kLineError = 0.03, kClearlyBelow = 0.8;

/// Returns a fit that predicts the median time at every size, for a layer's own collectives that no line fits: they
/// have a single size, or their times do not grow with size, as for short tasks of small layers. `why` becomes its
/// `weak`.
LinearFit fit_without_line(const std::vector<FitSample>& samples, std::string_view why);

struct FittedRow {
  std::string what;  // row_name (profile.h): "alltoall inter 8", "gemm float32", "attention forward 256"
  LinearFit fit;     // default-constructed if the row is unusable
  std::optional<std::string> unusable;  // the reason why the profile does not have the row; empty if it has
  /// Returns whether the row is neither unusable nor weak.
  bool good() const { return !unusable && !fit.weak; }
};

struct FittedProfile {
  Profile profile;
  std::vector<FittedRow> rows;  // one per kind of case, in the order of [[comm]], [[compute]], [[module]]
};

/// Merges repeated measurements of a case (parameters.again_of: the key of the first measurement). The measurement with
/// the smallest median is kept, because disturbances can only lengthen a time; it gets the key and place of the first
/// one. A case with a wrong result is always kept.
std::vector<CaseRecord> best_attempts(const std::vector<CaseRecord>& cases);

/// Fits one row per kind of case. Cases with a status other than ok are ignored; of repeated measurements, the best
/// counts (best_attempts). All cases must be of one cluster, all emulated or all not; those with a network must have
/// the same backend, or "none" if they were imported. A kind of case that no line fits becomes a row of
/// Profile::unusable. The result can be written and read back unchanged (write_profile). The fields that a case must
/// have:
///   parameters.cluster, .nodes, .ranks_per_node   the same in all cases
///   parameters.op                                 a [[comm]] op, "gemm" or "module"
///     a [[comm]] op:  .network ("inter" | "intra"), .ranks (of the group), .bytes (volume as FSMoE counts it:
///                     of an allgather the gathered size), .algorithm (optional, "direct")
///     gemm:           .dtype, .flops (of all its GEMMs), .gemms (optional, 1)
///     slowdown:       .lane, .by ("inter" | "intra" | "compute" | "copy"), and summary.factor: a factor of
///                     [contention], from 1.05 on
///     overhead:       summary.crossing_s: the seconds that [overhead] adds to a task, at least 0
///     overlap:        nothing, not fitted
///     module:         .name, .phase ("forward" | "backward"), .flops or .bytes (of that phase: modules.h),
///                     .seq (optional)
///     task:           .name, .phase, .dtype, and its terms (terms.h: "call", "flop", ...)
///   summary.median_s: median over iterations of the maximum over ranks; for a task the mean of its chunks' medians
/// Throws BadInput naming the record's file and line and the value, or the name that is no valid profile name.
FittedProfile fit_profile(const std::vector<CaseRecord>& cases, const std::string& name, const std::string& source);
/// Returns the parameters that every case for fit_profile() has: `cluster`, `nodes`, `ranks_per_node` and `op`.
Fields case_parameters(const Profile& cluster, std::string_view op);

/// A warning about a fit. `weak`: it is about a weak row; prices from such a row are labelled as well.
struct FitWarning {
  std::string text;
  bool weak = false;
};
/// Returns a warning for each row that is weak or unusable, and one for each row with set-aside samples.
std::vector<FitWarning> fit_warnings(const FittedProfile& fitted);
/// Formats r^2 with seven decimals, or with two significant digits if it is far below 0.
std::string r_squared_text(double r_squared);

// The fit of a [[task]] row to times of a layer's computations.

struct TermSample {
  TermValues terms{};
  double seconds = 0;
};

/// Fits the coefficients seconds_per_term >= 0 of seconds = seconds_per_term . terms by least squares of relative
/// errors, so that short tasks count as much as long ones; reweighting reduces the influence of odd samples. Sets the
/// row's verdict: the held-out error of a sample is that of a fit to the others, and `weak` is set if errors exceed the
/// limits above or samples are too few. Throws BadInput if there is no sample, or for times that are not positive;
/// FitError if numbers overflow.
void fit_terms(const std::vector<TermSample>& samples, std::string_view what, TaskRow& row);

}  // namespace moe
