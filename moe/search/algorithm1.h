#pragma once
// FSMoE's Algorithm 1 (section 4.3): the pipeline degree of one phase from closed forms instead of replays. Beside the
// exact search (degrees.h), to be compared with it; never a stand-in for it.
//
// The forms hold for the order of schedule `fsmoe` with AlltoAll on the inter and AllGather, ReduceScatter on the intra
// network. Where AllGather and ReduceScatter take equally long they are the replay; elsewhere they are at times off.
#include <array>
#include <optional>

#include "moe/prices/pricer.h"

namespace moe {

/// The seconds of an operation cut into r chunks: a chunk takes alpha + whole / r (section 4.1).
struct ChunkTime {
  double alpha_s = 0, whole_s = 0;
  double chunk(double r) const { return alpha_s + whole_s / r; }
};

/// The costs of one phase of the MoE part on one rank; `gar_s`: the gradient AllReduce put into it, 0 in a
/// forward.
struct PhaseCosts {
  ChunkTime alltoall, allgather, reducescatter, expert;
  double gar_s = 0;
};

/// Returns the costs of a priced layer: alpha is the price of 0 rows, alpha + whole that of T_rank. An operation over
/// one rank is free. Measured curves are straightened between these two.
PhaseCosts phase_costs(const LayerPricer& pricer, Phase phase, double gar_s);

/// The answers to Q1 to Q7 (section 4.2) at degree r >= 1, in this order.
using Answers = std::array<bool, 7>;
Answers questions(const PhaseCosts& costs, double r);

/// Returns which of the four cases, 1 to 4, the answers fall into: exactly one.
int case_of(const Answers& answers);

/// Returns t_1 to t_4 (section 4.2): seconds of the phase if `which` is the case of degree r.
double case_seconds(int which, const PhaseCosts& costs, double r);

/// Returns the seconds at degree r, by the case that r falls into.
double predicted_seconds(const PhaseCosts& costs, double r);

/// Returns what the MoE part hides of a gradient AllReduce at degree r (section 5.2, t_olp,moe), whatever gar_s is.
double overlappable_seconds(const PhaseCosts& costs, double r);

struct CaseMinimum {
  double degree = 1, seconds = 0;
};

/// Returns by case its least time over real 1 <= r <= most_degree where its constraint holds (line 1 to 4); empty where
/// it holds nowhere. At the open end of a range it is the limit. The result is exact: between the roots of the
/// seven differences no answer changes, and there each time is convex.
std::array<std::optional<CaseMinimum>, 4> case_minima(const PhaseCosts& costs, double most_degree);

/// How a real degree becomes one that can run.
///   neighbours     the better of floor and ceil
///   powers_of_two  as the authors' published optimiser: the best of the neighbours in {1, 2, 4, 8} of each case's
///   degree
enum class DegreeRounding { neighbours, powers_of_two };

struct Algorithm1Result {
  int degree = 1;
  double seconds = 0;  // predicted for `degree`
  int which_case = 2;  // of `degree`
  int real_case = 2;   // of the least of the four, before it is rounded (line 5 to 9)
  CaseMinimum real;
};

/// Chooses a degree from 1 to `most_degree` >= 1. Ties go to the smaller degree.
Algorithm1Result algorithm1(const PhaseCosts& costs, int most_degree,
                            DegreeRounding rounding = DegreeRounding::neighbours);

}  // namespace moe
