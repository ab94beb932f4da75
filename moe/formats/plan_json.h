#pragma once
// A plan of a layer or of a whole iteration as a JSON document (docs/exchange.md), for other programs' executors and
// for plans that are not from our schedules.
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

/// Writes everything that read_plan needs, and values that follow from it: rows, bytes and FLOPs of tasks, a hash. Each
/// task has one line.
void write_plan(const Plan& plan, std::ostream& out);

/// Returns the plan's hash in the form of documents and records: 16 hexadecimal digits.
std::string digest_of(const Plan& plan);

/// Reads a plan and checks it. Work, rows and groups are derived from the layer and the tasks, not read from the file;
/// a hash that differs gives a warning. Throws BadInput "FILE: tasks[7].kind: found ..., expected ..." for a file that
/// is not such a document, and "FILE: plan: TASK: ..." for a plan that breaks a rule (check_plan).
Plan read_plan(const std::string& path);
/// Reads the text of such a file; `path` is for messages.
Plan parse_plan(std::string_view text, const std::string& path);

// A layer's shape and groups as JSON in documents for other programs, and back.

/// Returns every field by its name in layer files; capacity_factor is null for dropless.
Json layer_json(const LayerShape& layer);
/// Returns nodes, ranks_per_node and the groups' sizes; also zero, recompute and offload if a rank does not keep
/// everything.
Json group_sizes(const ParallelShape& parallel);

/// The keys of a document's layer, including its rounding of rows, and of its groups, including their placement.
inline constexpr auto kCaseLayerKeys = with(kLayerKeys, {"capacity_rounding"});
inline constexpr auto kCaseGroupKeys =
    with(kParallelKeys, {"nodes", "ranks_per_node", "edp", "zero", "recompute", "offload"});

/// Reads a document's layer and groups, which may be the same object. Throws BadInput if a key of a size, a part or a
/// group is missing, although layer files may omit it, and if the values don't fit together.
LayerCase read_case(const TableReader& layer, const TableReader& groups);

}  // namespace moe
