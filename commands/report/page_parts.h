#pragma once
// The page of report/page as the build puts it together: what stands before and behind the data.
#include <string_view>

namespace moe::report {

extern const std::string_view kPageBeforeData, kPageAfterData;

}  // namespace moe::report
