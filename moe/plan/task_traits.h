#pragma once
// Tells of each kind of task what does not depend on the layer.
#include <string_view>

#include "moe/plan/groups.h"
#include "moe/plan/op.h"
#include "moe/plan/task_kind.h"

namespace moe {

struct TaskTraits {
  TaskKind kind;
  std::string_view name;  // in plans, records and timelines
  Op op;                  // that it is priced as; none: by its kind alone
  GroupKind group;        // over which it talks, as a sharded flow (group_of asks the flow); none: a computation
};
const TaskTraits& traits_of(TaskKind kind);

}  // namespace moe
