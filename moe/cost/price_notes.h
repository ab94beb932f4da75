#pragma once
// Notes of what a reader must know of the rows that price something.
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "moe/cost/profile.h"

namespace moe {

/// Begins every note of a weak row.
inline constexpr std::string_view kWeakRow = "weak row ";
/// Returns the notes that name weak rows, in one line; empty: none does.
std::string weak_rows(const std::set<std::string>& notes);

/// Returns ": measured, but ..." of a row that was measured to no avail; empty: it wasn't measured.
std::string why_unusable(const Profile& profile, const std::string& row);
/// Returns what a reader must know of a size outside of those that a row was fitted to.
std::optional<std::string> range_note(const CommRow& row, double bytes);
std::optional<std::string> range_note(const ModuleRow& row, double size);
/// Returns what a reader must know of a task's terms outside of those that a row was fitted to.
std::set<std::string> range_notes(const TaskRow& row, const TermValues& task);

/// Returns what a reader must know of an AlltoAll's row that prices this layer. A copy for each chosen expert costs the
/// same whatever nodes these lie on: a layer's node_limit changes nothing there. A row that was measured with rows sent
/// once a node has the time of tokens that reach its own node_limit at most: a layer whose tokens reach more takes
/// longer, by how much no row says.
std::optional<std::string> fan_out_note(const CommRow& row, const LayerCase& shape);

}  // namespace moe
