#include "moe/base/terminal.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "moe/base/log.h"
#include "moe/base/units.h"

namespace moe {
namespace {

constexpr int kMinColumns = 40;

}  // namespace

std::optional<int> output_columns() {
  if (const char* const columns = std::getenv("COLUMNS"); columns != nullptr) {
    const std::string_view text = columns;
    int set = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), set);
    if (error == std::errc{} && end == text.data() + text.size() && set > 0) return std::max(kMinColumns, set);
  }
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return std::nullopt;
  return std::max<int>(kMinColumns, size.ws_col);
}

int limited_output_columns(int max_columns) { return std::min(max_columns, output_columns().value_or(max_columns)); }

void widen_output() { ::setenv("COLUMNS", std::to_string(kWidened).c_str(), 1); }

std::string line_within_columns(std::string_view line, size_t indent, std::optional<int> columns) {
  std::string text;
  size_t before = 0;  // blanks before the first word of this line
  while (columns && line.size() + before > static_cast<size_t>(*columns)) {
    const size_t blank = line.rfind(' ', static_cast<size_t>(*columns) - before);
    if (blank == std::string_view::npos || line.find_first_not_of(' ') > blank) break;
    text += std::string(before, ' ') + std::string(line.substr(0, blank)) + '\n';
    line.remove_prefix(blank + 1);
    before = indent;
  }
  return text + std::string(before, ' ') + std::string(line);
}

std::string text_within_columns(std::string_view text, size_t indent) {
  std::string fitted;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const bool command = line.find("moetune ") != std::string_view::npos;
    fitted += command ? std::string(line) : line_within_columns(line, indent);
    if (end < text.size()) fitted += '\n';
    begin = end + 1;
  }
  return fitted;
}

namespace {

constexpr double kTerminalEveryS = 0.2, kLogEveryS = 10;
constexpr double kTellingShare = 0.02;  // from this share on, the time left is estimated from the time so far
constexpr double kTellingOfKind = 0.2;  // from this share of a kind on, only its own seconds count

}  // namespace

void MeasuredWork::record_done(const std::string& kind, double amount, double seconds) {
  Kind& of = kinds_[kind];
  of.open = std::max(0.0, of.open - amount);
  of.done += amount;
  of.seconds += seconds;
}

double MeasuredWork::seconds() const {
  double sum = 0;
  for (const auto& [name, kind] : kinds_) sum += kind.seconds;
  return sum;
}

std::optional<double> MeasuredWork::remaining_s() const {
  double done = 0, left = 0;
  for (const auto& [name, kind] : kinds_) done += kind.done;
  if (done <= 0) return std::nullopt;
  const double of_all = seconds() / done;
  for (const auto& [name, kind] : kinds_) {
    if (kind.open <= 0) continue;
    const double own = kind.done > 0 ? kind.seconds / kind.done : of_all;
    const double told = std::min(1.0, kind.done / (kind.done + kind.open) / kTellingOfKind);
    left += kind.open * (told * own + (1 - told) * of_all);
  }
  return left;
}

double MeasuredWork::share() const {
  const std::optional<double> left = remaining_s();
  const double all = left ? seconds() + *left : 0;
  return all > 0 ? seconds() / all : 0;
}

Progress::Progress(std::string what, std::optional<double> expected_s)
    : what_(std::move(what)),
      expected_s_(expected_s),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {
  show(0, false);
}

double Progress::elapsed_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Progress::at(double share) {
  if (elapsed_s() - shown_s_ >= (terminal_ ? kTerminalEveryS : kLogEveryS)) show(share, false);
}

void Progress::finish() { show(1, true); }

void Progress::show(double share, bool last) {
  shown_s_ = elapsed_s();
  const std::string told =
      last ? fmt::format("done in {}", human_seconds(shown_s_)) : state(share, shown_s_, expected_s_);
  log_progress(fmt::format("{}{}: {}{}", terminal_ ? "\r\x1b[K" : "", what_, told, terminal_ && !last ? "" : "\n"));
}

std::string Progress::state(double share, double elapsed_s, std::optional<double> expected_s) {
  std::string percent = fmt::format("{:3.0f} %", 100 * share);
  const bool tells = share > kTellingShare;
  if (!tells && !expected_s) return percent;
  const double left = tells ? elapsed_s / share * (1 - share) : *expected_s - elapsed_s;
  return fmt::format("{}, about {:.0f} s left", percent, std::max(left, 0.0));
}

}  // namespace moe
