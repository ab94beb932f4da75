#pragma once
// From measured times to a cluster profile: least squares on t(n) = starts alpha + n beta (FSMoE sections 4.1, 6.2).
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/cost/profile.h"
#include "moe/record/record.h"

namespace moe {

struct FitSample {
  double size = 0;  // bytes or FLOPs
  double seconds = 0;
  double starts = 1;  // how often alpha is paid: the GEMMs of a sample
};

struct LinearFit {
  double alpha_s = 0;
  double beta = 0;  // seconds a byte or a FLOP
  double r_squared = 0;
  /// Every fourth sample by size (the 4th, 8th, ...) is kept out of a second fit; the median over these of
  /// |predicted - measured| / measured. Empty where fewer than two sizes are left to fit.
  std::optional<double> held_out_error;
  Range range{};               // least and most size of one start
  bool alpha_clamped = false;  // the least squares put alpha below 0: fitted again with alpha = 0
  size_t samples = 0;
};

/// Ordinary least squares, as the papers do. Throws BadInput "WHAT: found ..., expected ..." for fewer than two sizes,
/// sizes or times that are not positive and finite, and times that don't grow with size.
LinearFit fit_linear(std::vector<FitSample> samples, std::string_view what);

struct FittedRow {
  std::string what;  // "alltoall inter 8", "gemm float32", "attention forward 256"
  LinearFit fit;
};

struct FittedProfile {
  Profile profile;
  std::vector<FittedRow> rows;  // in the order of the profile's rows, [[comm]], [[compute]], [[module]]
};

/// Fits one row per kind of case. Cases with a status other than ok are passed over. All are of one backend. What a
/// case must carry:
///   parameters.cluster, .nodes, .ranks_per_node   the same in all cases
///   parameters.op                                 a [[comm]] op, "gemm" or "module"
///     a [[comm]] op:  .network ("inter" | "intra"), .ranks (of the group), .bytes (volume as FSMoE counts it:
///                     of an allgather the gathered size), .algorithm (optional, "direct")
///     gemm:           .dtype, .flops (of all its GEMMs), .gemms (optional, 1)
///     slowdown:       .lane, .by ("inter" | "intra" | "compute" | "copy"), and summary.factor: a factor of
///     [contention], from
///                     1.05 on;  overhead: summary.crossing_s, what [overhead] adds to a task;
///                     overlap: not fitted
///     module:         .name, .phase ("forward" | "backward"), .flops or .bytes (of that phase: modules.h),
///                     .seq (optional)
///   summary.median_s                              median over iterations of the maximum over ranks
/// Throws BadInput naming the record's file and line and the value.
FittedProfile fit_profile(const std::vector<CaseRecord>& cases, const std::string& name, const std::string& source);

}  // namespace moe
