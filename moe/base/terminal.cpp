#include "moe/base/terminal.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sys/ioctl.h>
#include <unistd.h>

namespace moe {
namespace {

constexpr int kLeastColumns = 40;

}  // namespace

std::optional<int> output_columns() {
  if (const char* const columns = std::getenv("COLUMNS"); columns != nullptr) {
    const std::string_view text = columns;
    int set = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), set);
    if (error == std::errc{} && end == text.data() + text.size() && set > 0) return std::max(kLeastColumns, set);
  }
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return std::nullopt;
  return std::max<int>(kLeastColumns, size.ws_col);
}

int output_columns_up_to(int most) { return std::min(most, output_columns().value_or(most)); }

std::string fitted_line(std::string_view line) {
  const auto columns = output_columns();
  std::string text;
  while (columns && line.size() + (text.empty() ? 0 : 2) > static_cast<size_t>(*columns)) {
    const size_t blank = line.rfind(' ', static_cast<size_t>(*columns) - (text.empty() ? 0 : 2));
    if (blank == std::string_view::npos || blank == 0) break;
    text += (text.empty() ? "" : "  ") + std::string(line.substr(0, blank)) + '\n';
    line.remove_prefix(blank + 1);
  }
  return text + (text.empty() ? "" : "  ") + std::string(line);
}

}  // namespace moe
