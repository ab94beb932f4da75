#include "moe/base/suggestion.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

namespace moe {
namespace {

// The optimal string alignment distance.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) now[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, now);
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
  }
  return now.back();
}

}  // namespace

std::string suggestion(std::string_view name, std::span<const std::string_view> known) {
  size_t least = std::max<size_t>(1, name.size() / 3) + 1;
  std::string_view nearest;
  for (const std::string_view other : known)
    if (const size_t count = edits(name, other); count < least) least = count, nearest = other;
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

}  // namespace moe
