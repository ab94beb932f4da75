#pragma once
// Reads what tables of prices have in common, be they a profile's own or assumed: what a row is of, alpha and beta.
#include <array>
#include <functional>
#include <string_view>

#include "moe/base/config.h"
#include "moe/cost/profile.h"

namespace moe {

/// Lists what a collective's row may have been measured with.
inline constexpr std::array<std::string_view, 3> kAlgorithms{"direct", "1dh", "2dh"};

/// Limit prices to what any machine may take and sums of them can hold: seconds, and seconds a byte or FLOP.
inline constexpr Limits kSeconds{.least = 0, .most = 1e12};
inline constexpr Limits kSecondsPerUnit{.most = 1e6, .above = 0};

/// These read the row that a table is. `most_ranks`: of a group on that network. They throw BadInput as TableReader
/// does.
CommRow comm_row_from(const TableReader& table, const std::function<double(Network)>& most_ranks);
ComputeRow compute_row_from(const TableReader& table);
ModuleRow module_row_from(const TableReader& table);

/// Reads a whole profile, as read_profile does of a file.
Profile profile_of(const ConfigFile& file);

}  // namespace moe
