#pragma once
// The commit that the program was built from.
#include "moe/record/record.h"

namespace moe::cli {

/// Returns "commit", 40 hexadecimal digits, and "dirty", whether the sources were changed since; "unknown" alone where
/// they were built without git.
Fields built_from();

}  // namespace moe::cli
