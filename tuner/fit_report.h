#pragma once
// A fitted profile as a table, and as a file.
#include <optional>
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "moe/cost/fit.h"

namespace moe::tuner {

/// Returns one line a row: alpha, beta, r^2 of all samples, held-out error (median and worst), samples set aside;
/// beside `truth`, where given (the profile that paced an emulated cluster), the error of both. "!": weak or unusable.
/// Then the slowdowns, and a line for each warning.
std::string fit_table(const FittedProfile& fitted, const Profile* truth);

/// Returns the rows, each with what its table's line and warnings say.
Json fit_json(const FittedProfile& fitted);

/// Writes the profile as a whole (moe/base/whole_file.h), and makes the folders above it.
void save_profile(const Profile& profile, const std::string& path);

}  // namespace moe::tuner
