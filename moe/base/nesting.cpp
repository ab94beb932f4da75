#include "moe/base/nesting.h"

#include <algorithm>
#include <vector>

#include "moe/base/check.h"

namespace moe {
namespace {

// Returns the place behind a string that begins at `at`, or the text's end.
size_t behind_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.substr(at, 3) == three;
  for (size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"')
      ++i;
    else if (lines && text.substr(i, 3) == three)
      return i + 3;
    else if (!lines && (text[i] == quote || text[i] == '\n'))
      return i + 1;
  }
  return text.size();
}

}  // namespace

void check_toml_levels(std::string_view text, const std::string& path) {
  std::vector<int> open;  // levels that each bracket adds, with those of its key
  int levels = 0, dots = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '"' || c == '\'') {
      i = behind_string(text, i);
    } else {
      if (c == '[' || c == '{') {
        open.push_back(dots + 1);
        levels += open.back();
        dots = 0;
      } else if ((c == ']' || c == '}') && !open.empty()) {
        levels -= open.back();
        open.pop_back();
      }
      // A value has at most one dot, so that those of a key stay until the next key.
      if (c == '.') ++dots;
      if (c == '\n' || c == ',') dots = 0;
      if (levels + dots > kMostLevels)
        bad_input("{}:{}: found values nested deeper than {} levels, expected fewer", path,
                  1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'), kMostLevels);
      ++i;
    }
  }
}

}  // namespace moe
