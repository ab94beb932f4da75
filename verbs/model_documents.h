#pragma once
// What `modelbench --json` printed, as records.
#include <string>

#include "moe/record/reader.h"

namespace moe::verbs {

/// Returns the schedules of one document, or of a list of them, as a run without a time stamp, which no document has.
/// Throws BadInput "FILE: found ..., expected ..." for any other text.
Run run_of_documents(const std::string& text, const std::string& file);

}  // namespace moe::verbs
