#pragma once
// FSMoE's Algorithm 1 (section 4.3): the pipeline degree of one phase from closed forms instead of replays. It is only
// a baseline for the exact search (degrees.h).
//
// The closed forms assume the order of schedule `fsmoe`, with the AlltoAll on the inter network and AllGather and
// ReduceScatter on the intra network. They equal the replay if AllGather and ReduceScatter take equally long, and may
// differ from it otherwise.
#include <array>
#include <optional>

#include "moe/prices/pricer.h"

namespace moe {

/// The seconds of an operation that is cut into r chunks: a chunk takes alpha + whole / r (section 4.1).
struct ChunkTime {
  double alpha_s = 0, whole_s = 0;
  double chunk(double r) const { return alpha_s + whole_s / r; }
};

/// The costs of one phase of the MoE part on one rank. `gar_s`: seconds of the gradient AllReduce inside the MoE part;
/// 0 in a forward.
struct PhaseCosts {
  ChunkTime alltoall, allgather, reducescatter, expert;
  double gar_s = 0;
};

/// Returns the costs of a priced layer: alpha is the price of 0 rows, and alpha + whole that of T_rank rows, so
/// measured curves are replaced by the straight line between the two. An operation over one rank is free.
PhaseCosts phase_costs(const LayerPricer& pricer, Phase phase, double gar_s);

/// The answers to Q1 to Q7 (section 4.2) at degree r >= 1, in this order.
using CaseConditions = std::array<bool, 7>;
CaseConditions case_conditions(const PhaseCosts& costs, double r);

/// Returns the case, 1 to 4, to which the answers belong; there is exactly one.
int case_of(const CaseConditions& answers);

/// Returns t_1 to t_4 (section 4.2): the seconds of the phase if degree r belongs to case `which`.
double case_seconds(int which, const PhaseCosts& costs, double r);

/// Returns the seconds at degree r, by the case to which r belongs.
double predicted_seconds(const PhaseCosts& costs, double r);

/// Returns the seconds of a gradient AllReduce that the MoE part hides at degree r (section 5.2, t_olp,moe).
double overlappable_seconds(const PhaseCosts& costs, double r);

struct CaseMinimum {
  double degree = 1, seconds = 0;
};

/// Returns for each case its minimum over the real degrees 1 <= r <= most_degree that belong to it (lines 1 to 4), or
/// its infimum at an open end of their range; empty if no degree does. It is exact, because between the roots of the
/// seven differences no answer changes and each case's time is convex.
std::array<std::optional<CaseMinimum>, 4> case_minima(const PhaseCosts& costs, double max_degree);

/// How a real degree is rounded to an integer.
///   neighbours     the better of floor and ceil
///   powers_of_two  as in the authors' published optimiser: the best, over all cases, of the neighbours in {1, 2, 4, 8}
///                  of the case's degree
enum class DegreeRounding { neighbours, powers_of_two };

struct Algorithm1Result {
  int degree = 1;
  double seconds = 0;      // predicted for `degree`
  int which_case = 2;      // case of `degree`
  int unrounded_case = 2;  // case with the smallest minimum, before rounding (lines 5 to 9)
  CaseMinimum real;
};

/// Chooses a degree from 1 to `most_degree` >= 1. Ties go to the smaller degree.
Algorithm1Result algorithm1(const PhaseCosts& costs, int max_degree,
                            DegreeRounding rounding = DegreeRounding::neighbours);

}  // namespace moe
