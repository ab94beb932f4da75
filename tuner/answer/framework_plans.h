#pragma once
// The best plan of each framework: in the given groups, or in its best shape if shapes were searched.
#include <string>
#include <vector>

#include "tuner/answer/answer.h"

namespace moe::tuner {

/// Returns the best plans of the frameworks that the answer is for, except frameworks that run every schedule. If no
/// shape was searched, the plans have the answer's groups. Their order of micro-batches is then that of the flags, else
/// 1F1B, which all frameworks run; states that no flag decides are set by the framework's rules of memory. `options`:
/// the subject's.
std::vector<FrameworkPlans> plans_of(const Answer& answer, const RankingRequest& request, const TuneOptions& options);

/// Returns whether two models have the same layers, groups, micro-batches and states of ranks; their rules of memory
/// may differ.
bool same_shape(const ModelShape& a, const ModelShape& b);

/// Returns the framework's plan to use: the preferred one, unless another one ran clearly faster; null if the framework
/// has no plan.
const RankedShape* best_of(const Answer& answer, const FrameworkPlans& plans);

/// Returns whether the plan equals a row of the answer's ranking, including its memory.
bool is_ranked(const Answer& answer, const RankedShape& plan);

/// Returns the command that exports settings, and a line for each framework: its plan, or the reason why it has none.
/// `plans`: largest number of plans, the fastest first; equal plans share a line, and the others are only named; 0:
/// all.
std::string frameworks_text(const Answer& answer, const RankedSchedule& use, size_t plans);
/// Returns the content of frameworks_text without a limit of width, in the form that records store.
AnswerPart frameworks_part(const Answer& answer, const RankedSchedule& use);

}  // namespace moe::tuner
