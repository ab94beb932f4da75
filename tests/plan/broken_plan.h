#pragma once
// A good plan and ways to break it: what the tests of check_plan share.
#include <functional>
#include <string>
#include <string_view>

#include "moe/plan/plan.h"
#include "moe/schedule/schedule.h"

namespace moe::broken_plan {

inline constexpr Phase kForward = Phase::forward, kBackward = Phase::backward;

/// Returns two nodes of two ranks: EP = DP = 2 between nodes, MP = ESP = 2 inside them.
LayerCase four_ranks();
/// Returns a good plan: 1000 bytes of gradients go into the MoE part under fsmoe, the others beside the dense part.
Plan good_plan(std::string_view schedule = "fsmoe", const Decision& decision = {2, 3, 1000});
Plan changed(const Plan& plan, const std::function<void(Structure&)>& change);

Task& task_of(Structure& s, Phase phase, TaskKind kind, int chunk = 0);
/// Removes a task and numbers the others anew; tasks that waited for it wait for what it waited for.
void drop(Structure& s, int id);
/// Takes the task from its lane's queue and puts it into that of `lane`, by id.
void move_to_lane(Structure& s, Task& task, int lane);

/// Returns the message of check_plan, or "no complaint".
std::string complaint(const Plan& plan);
/// Expects a complaint that begins with the task's name and states the rule.
void expect_named(const Plan& plan, const std::string& task, const std::string& rule);
/// Breaks a rule at one task of a good plan and expects the complaint to name that task.
void expect_broken_at(Phase phase, TaskKind kind, int chunk, const std::function<void(Structure&, Task&)>& change,
                      const std::string& rule);

}  // namespace moe::broken_plan
