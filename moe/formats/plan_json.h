#pragma once
// A plan as a JSON document (docs/exchange.md), of a layer or of a whole iteration, for executors that are not ours and
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

/// Writes all that read_plan needs, and beside it what follows from that: rows, bytes and FLOPs of tasks, a hash. One
/// task a line.
void write_plan(const Plan& plan, std::ostream& out);

/// Returns the plan's hash as documents and records have it: 16 hexadecimal digits.
std::string digest_of(const Plan& plan);

/// Reads a plan and checks it. Work, rows and groups follow from layer and tasks, whatever the file
/// says of them; a hash that differs gives a warning. Throws BadInput "FILE: tasks[7].kind: found ..., expected ..."
/// for what is no such document, and "FILE: plan: TASK: ..." for a plan that breaks a rule (check_plan).
Plan read_plan(const std::string& path);
/// Reads the text of such a file; `path` is for messages.
Plan parse_plan(std::string_view text, const std::string& path);

// A layer's shape and its groups in documents that other programs read, and back.

/// Returns every field by its name in layer files; capacity_factor null: dropless.
Json layer_json(const LayerShape& layer);
/// Returns nodes, ranks_per_node and the groups' sizes; zero and recompute where a rank does not keep all.
Json group_sizes(const ParallelShape& parallel);

/// The keys of a document's layer, with how its rows are rounded, and of its groups, with their placement.
inline constexpr auto kCaseLayerKeys = with(kLayerKeys, {"capacity_rounding"});
inline constexpr auto kCaseGroupKeys = with(kParallelKeys, {"nodes", "ranks_per_node", "edp", "zero", "recompute"});

/// Reads what a document has of a layer and its groups; both may be one object. Throws BadInput where a key of a size,
/// of a part or of a group is missing, which files may leave out, and where these don't fit together.
LayerCase read_case(const TableReader& layer, const TableReader& groups);

}  // namespace moe
