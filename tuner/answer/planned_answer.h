#pragma once
// `tune` of one layer or one model with --no-verify, and the parts that it shares with a `tune` that also runs plans.
#include <string>
#include <vector>

#include "moe/record/writer.h"
#include "tuner/answer/answer.h"
#include "tuner/answer/subject.h"
#include "tuner/tune.h"

namespace moe::tuner {

/// Fills the ranking and the current schedule, by the answer's profile. `options`: the subject's. Throws Unsupported
/// where no schedule can be used.
void plan_answer(const TuneOptions& options, Answer& answer);

/// Throws Unsupported where no schedule can be used; plans until one can.
void require_any_plan(const TuneOptions& options, Answer answer);

/// Returns the neighbours of the recommended schedule, which runs may have changed.
std::vector<Neighbour> neighbours_of(const TuneOptions& options, const Answer& answer);

/// Appends a record a ranked schedule, "plan/NAME/SCHEDULE", all in one line, and one for each framework whose plan is
/// none of these, or that runs nothing, "framework/NAME/FRAMEWORK". `degrees`: as they were asked for.
void append_ranking(RecordWriter& writer, const Answer& answer, const DegreeChoice& degrees);

/// Appends the answer's parts as the record "answer/NAME", with what is recommended.
void append_answer(RecordWriter& writer, const Answer& answer);

/// Writes the Perfetto timeline of the best three and the baselines, as they are planned.
void write_ranking_trace(const TuneOptions& options, const Answer& answer);

/// Returns a command line of another verb about the same layer or model: the flags that were given, as far as that verb
/// has them, the groups of the answer and what it recommends. "VERB ... --schedule NAME".
std::string command_of(const std::string& verb, const TuneOptions& options, const Answer& answer);

/// Runs `tune --no-verify` of one layer or model.
int run_planned_answer(const TuneOptions& options);

}  // namespace moe::tuner
