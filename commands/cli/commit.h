#pragma once
// The commit that the program was built from.
#include <string>

#include "moe/record/record.h"

namespace moe::cli {

/// Returns "commit" (40 hexadecimal digits) and "dirty" (whether the sources were changed since); only "commit", with
/// the value "unknown", if they were built without git.
Fields built_from();

/// Returns the version and the commit of the build: "0.1.0, commit 0123456789ab, changed".
std::string build_name();

}  // namespace moe::cli
