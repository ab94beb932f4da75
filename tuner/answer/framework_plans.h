#pragma once
// The best plan of each framework: in the given groups, or in its best shape if shapes were searched.
#include <string>
#include <vector>

#include "tuner/answer/answer.h"

namespace moe::tuner {

/// Returns what each framework runs best that the answer is for, but those that run everything. Without a search they
/// have the answer's groups, the order of micro-batches that all of them run unless a flag says one, and where no flag
/// says what ranks keep, what fits as the framework counts. `options`: the subject's.
std::vector<FrameworkPlans> plans_of(const Answer& answer, const RankingRequest& request, const TuneOptions& options);

/// Returns whether two models have the same groups, micro-batches and states of ranks, whoever counts their memory.
bool same_shape(const ModelShape& a, const ModelShape& b);

/// Returns the plan to use: the preferred one, unless another one ran clearly faster; null: the framework runs none.
const RankedShape* best_of(const Answer& answer, const FrameworkPlans& plans);

/// Returns whether the plan is a row of the answer's ranking, its memory too.
bool is_ranked(const Answer& answer, const RankedShape& plan);

/// Returns how to get the settings, and a line for each framework: its plan, or why it has none. `plans`: how many of
/// the fastest are shown, of frameworks with the same plan one, with few words on the others; 0: all.
std::string frameworks_text(const Answer& answer, const RankedSchedule& use, size_t plans);
/// Returns the same without its limit of width.
AnswerPart frameworks_part(const Answer& answer, const RankedSchedule& use);

}  // namespace moe::tuner
