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

/// The backend of cases whose ranks shared a GPU over NCCL: results are NCCL's, times are no network's.
inline constexpr std::string_view kNcclOnOneGpu = "nccl-one-gpu";

/// A sample that the line is not fitted to (curve_fit.h: outliers).
struct SetAside {
  std::string name;  // of its case
  double size = 0, seconds = 0;
  double expected_s = 0;  // by the line
};

struct LinearFit {
  double alpha_s = 0;
  double beta = 0;            // seconds a byte or a FLOP
  double r_squared = 0;       // over all samples, whether set aside or not
  double r_squared_kept = 0;  // over those that are not
  /// Cross-validation: every size in turn is left out, a line fitted to what is kept of the others, and held against
  /// all samples of that size: |predicted - measured| / measured, the median and the worst over all samples, those set
  /// aside too. Empty where fewer than two sizes are left to fit.
  std::optional<double> held_out_error, held_out_worst;
  Range range{};               // least and most size of one start, of samples that are kept
  bool alpha_clamped = false;  // the least squares put alpha below 0: fitted again with alpha = 0
  size_t samples = 0;
  std::vector<SetAside> set_aside;   // in the order of their sizes
  std::optional<std::string> weak;   // which of the limits below it breaks
  Points points;                     // of a collective that a curve foretells clearly better (fit_curve)
  std::optional<double> line_error;  // then the line's held-out error; the others are the curve's
};

/// Limits within which a sound fit stays; one that doesn't is `weak`.
inline constexpr double kMostSetAside = 0.125;       // of the samples
inline constexpr double kMostHeldOutError = 0.1;     // the median over all samples
inline constexpr double kMostHeldOutWorst = 0.5;     // over samples that are kept
inline constexpr double kLeastRSquaredOfKept = 0.9;  // where the line doubles over its range

/// Samples through which no line goes: fewer than two sizes, or times that don't grow with size.
class NoLine : public BadInput {
 public:
  NoLine(std::string_view what, const std::string& why) : BadInput(fmt::format("{}: {}", what, why)), why_(why) {}
  /// Returns the message without its "WHAT: ".
  const std::string& why() const noexcept { return why_; }

 private:
  std::string why_;
};

/// Fits by ordinary least squares, as the papers do, all samples but outliers, which it names. Throws BadInput "WHAT:
/// found ..., expected ..." for sizes or times that are not positive and finite, NoLine where there is no line.
LinearFit fit_linear(std::vector<FitSample> samples, std::string_view what);

/// Takes the curve in few pieces (curve_fit.h) through what the line did not set aside, where the line's held-out error
/// is beyond kLineError and the curve's is clearly below it. Sets `points`, the errors and what they say of the fit;
/// alpha and beta become those of the least squares of relative errors, as tables print them. `samples` are those that
/// the line was fitted to.
void fit_curve(const std::vector<FitSample>& samples, std::string_view what, LinearFit& fit);
inline constexpr double kLineError = 0.03, kClearlyBelow = 0.8;

/// Returns the median, whatever the size, of times of a layer's own collectives through which no line goes: they are of
/// one size, or do not grow with it. `weak` says so. Short tasks of small layers are like that.
LinearFit fit_without_line(const std::vector<FitSample>& samples, std::string_view why);

struct FittedRow {
  std::string what;  // row_name (profile.h): "alltoall inter 8", "gemm float32", "attention forward 256"
  LinearFit fit;     // of a row that can be used
  std::optional<std::string> unusable;  // why the profile has no such row
  /// Returns whether nothing is to be said against the row.
  bool good() const { return !unusable && !fit.weak; }
};

struct FittedProfile {
  Profile profile;
  std::vector<FittedRow> rows;  // in the order of [[comm]], [[compute]], [[module]], each kind of case
};

/// Keeps of cases that were measured again (parameters.again_of: the key of the first measurement) the one with the
/// least median, under the first one's key, at its place: what else a machine does only ever adds to a time. A wrong
/// one is kept whatever the others are.
std::vector<CaseRecord> best_attempts(const std::vector<CaseRecord>& cases);

/// Fits one row per kind of case. Cases with a status other than ok are passed over, of those that were measured again
/// the best attempt counts. All are of one cluster, emulated or not; those with a network are of one backend, or of
/// "none", as somebody else's are. A kind of case without a line becomes a row of Profile::unusable. The profile reads
/// back from its file (profile.h: write_profile) as it is. What a case must carry:
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
///   summary.median_s: median over iterations of the maximum over ranks; of a task the mean of its chunks' medians
/// Throws BadInput naming the record's file and line and the value, or the name that no profile can have.
FittedProfile fit_profile(const std::vector<CaseRecord>& cases, const std::string& name, const std::string& source);
/// Returns the first parameters of such a case: `cluster`, `nodes`, `ranks_per_node` and `op`.
Fields case_parameters(const Profile& cluster, std::string_view op);

/// A line that a reader of any figure must know; `weak`: a row is, of which what it prices says so too.
struct FitWarning {
  std::string text;
  bool weak = false;
};
/// Returns a warning for each row that is weak or unusable, and for the samples that each set aside.
std::vector<FitWarning> fit_warnings(const FittedProfile& fitted);
/// Returns the number with seven digits behind the point, or with few where it is far below 0.
std::string shown_r_squared(double r_squared);

// Fits a [[task]] row to the times of a layer's computations.

struct TermSample {
  TermValues terms{};
  double seconds = 0;
};

/// Fits seconds = s_per . terms with no s_per below 0: least squares of relative errors, so that short tasks weigh as
/// long ones do, reweighted so that a few odd samples decide nothing. Fills what the row says of its own fit: held-out
/// errors are of each sample by the others, and `weak` where these are beyond the limits of fit.h or the samples are
/// too few to judge. Throws BadInput for no sample, or times that are not positive; NoLine where numbers overflow.
void fit_terms(const std::vector<TermSample>& samples, std::string_view what, TaskRow& row);

}  // namespace moe
