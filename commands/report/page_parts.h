#pragma once
// The page of report/page as the build assembles it: the text before and after the data.
#include <string_view>

namespace moe::report {

extern const std::string_view kPageBeforeData, kPageAfterData;

}  // namespace moe::report
