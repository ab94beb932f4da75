#pragma once
// A fitted profile as a table, and as a file.
#include <optional>
#include <string>

#include "moe/cost/fit.h"

namespace moe {

/// One line a row: alpha, beta, r^2, held-out error; beside `truth`, where given (the profile that paced an emulated
/// cluster), the error of both.
std::string fit_table(const FittedProfile& fitted, const Profile* truth);

/// Writes the profile as a whole (moe/base/whole_file.h), and makes the folders above it.
void save_profile(const Profile& profile, const std::string& path);

}  // namespace moe
