#pragma once
// `tune` of one layer or one model with --no-verify, and the parts that it shares with a `tune` that also runs plans.
#include <string>
#include <vector>

#include "moe/record/writer.h"
#include "tuner/answer/answer.h"
#include "tuner/answer/subject.h"
#include "tuner/tune.h"

namespace moe::tuner {

/// Sets the answer's ranking, the row of the user's layout and the frameworks' plans, by the answer's profile.
/// `options`: the subject's. Throws Unsupported if no schedule is usable.
void plan_answer(const TuneOptions& options, Answer& answer);

/// Throws Unsupported if no schedule is usable. Plans schedules only until it finds a usable one.
void require_any_plan(const TuneOptions& options, Answer answer);

/// Returns the neighbours of the recommended schedule. Call it after the trials, which can change the recommendation.
std::vector<Neighbour> neighbours_of(const TuneOptions& options, const Answer& answer);

/// Appends a record "plan/NAME/SCHEDULE" for each ranked schedule, all in one line, and a record
/// "framework/NAME/FRAMEWORK" for each framework that has no plan, or one that is not in the ranking. `degrees`: the
/// requested ones.
void append_ranking(RecordWriter& writer, const Answer& answer, const DegreeChoice& degrees);

/// Appends the record "answer/NAME" with the answer's parts and the recommended schedule and degrees.
void append_answer(RecordWriter& writer, const Answer& answer);

/// Writes the predicted timelines of the best three schedules and the baselines as a Perfetto file.
void write_ranking_trace(const TuneOptions& options, const Answer& answer);

/// Returns a command line "VERB ... --schedule NAME" of another verb for the same layer or model: the given flags that
/// this verb has, the groups of the answer, and the recommended schedule.
std::string command_of(const std::string& verb, const TuneOptions& options, const Answer& answer);

/// Runs `tune --no-verify` of one layer or model.
int run_planned_answer(const TuneOptions& options);

}  // namespace moe::tuner
