#pragma once
// The plan of a layer or of a whole iteration as a JSON document (docs/exchange.md), for executors of other programs
// and for plans that other programs made.
#include <iosfwd>
#include <string>
#include <string_view>

#include "moe/base/json.h"
#include "moe/plan/plan.h"
#include "moe/shape/layer_file.h"

namespace moe {

inline constexpr std::string_view kPlanFormat = "moetune-plan";
inline constexpr std::string_view kPlanBegins = "{\"format\": \"moetune-plan\"";
inline constexpr int kPlanVersion = 1;

/// Writes everything that read_plan needs, and values derived from it: rows, bytes and FLOPs of tasks, and a hash. Each
/// task is one line.
void write_plan(const Plan& plan, std::ostream& out);

/// Returns the plan's hash as documents and records show it: 16 hexadecimal digits.
std::string digest_of(const Plan& plan);

/// Reads a plan and checks it. Work, rows and groups are derived from the layer and the tasks instead of read; a
/// different hash gives a warning. Throws BadInput "FILE: tasks[7].kind: found ..., expected ..." for a file that is no
/// such document, and "FILE: plan: TASK: ..." for a plan that breaks a rule (check_plan).
Plan read_plan(const std::string& path);
/// Reads the text of such a file; `path` is for messages.
Plan parse_plan(std::string_view text, const std::string& path);

// A layer's shape and groups in the JSON documents for other programs.

/// Returns all fields of a layer under the keys of layer files; capacity_factor is null if the layer is dropless.
Json layer_json(const LayerShape& layer);
/// Returns nodes, ranks_per_node and the groups' sizes, and zero, recompute and offload unless all three are off.
Json group_sizes(const ParallelShape& parallel);

/// The keys of a document's layer and of its groups.
inline constexpr auto kCaseLayerKeys = with(kLayerKeys, {"capacity_rounding"});
inline constexpr auto kCaseGroupKeys =
    with(kParallelKeys, {"nodes", "ranks_per_node", "edp", "zero", "recompute", "offload"});

/// Reads a document's layer and groups, which may be the same object. Throws BadInput if the values don't fit together
/// or a key of a size, a part or a group is missing; unlike in layer files, these keys are required.
LayerCase read_case(const TableReader& layer, const TableReader& groups);

}  // namespace moe
