#pragma once
// One layer's plan as a JSON document (docs/exchange.md), for executors that are not ours and for plans that are not
// from our schedules.
#include <iosfwd>
#include <string>

#include "moe/plan/plan.h"

namespace moe {

inline constexpr std::string_view kPlanFormat = "moetune-plan";
inline constexpr int kPlanVersion = 1;

/// Writes all that read_plan needs, and beside it what follows from that: rows, bytes and FLOPs of tasks, a hash. One
/// task a line.
void write_plan(const Plan& plan, std::ostream& out);

/// Reads a plan of one layer, once, and checks it. Work, rows and groups follow from layer and tasks, whatever the file
/// says of them; a hash that differs gives a warning. Throws BadInput "FILE: tasks[7].kind: found ..., expected ..."
/// for what is no such document, and "FILE: plan: TASK: ..." for a plan that breaks a rule (check_plan).
Plan read_plan(const std::string& path);

}  // namespace moe
