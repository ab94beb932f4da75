#pragma once
// The terminal that results are printed on.
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace moe {

/// Returns the width of the output in columns: COLUMNS if it is set, else that of the terminal on stdout, at least 40.
/// Empty if stdout is not a terminal; then lines may have any length.
std::optional<int> output_columns();

/// Makes the output so wide that tables fold and omit nothing, in this process and in those it starts (sets COLUMNS).
void widen_output();
/// The width that widen_output() sets.
inline constexpr int kWidened = 1000000;

/// The most columns of help, answers and lines under tables, however wide the output is.
inline constexpr int kMaxColumns = 120;
/// Returns the width of the output in columns, but at most `max_columns`.
int limited_output_columns(int max_columns);

/// Breaks a line between words so that it fits the columns; continuation lines are indented.
std::string line_within_columns(std::string_view line, size_t indent = 2,
                                std::optional<int> columns = output_columns());
/// Breaks each line of a text in the same way, except lines with a command that a reader copies.
std::string text_within_columns(std::string_view text, size_t indent = 2);

// Progress with an estimate of the time left, on stderr: one line that is rewritten on a terminal, a few lines
// elsewhere.

/// Estimates the time left from the seconds of the work so far. Work is of several kinds, each with an amount that
/// grows with its time. A kind is estimated by its own seconds per amount; a kind that has not begun, by those of all
/// work so far; one that has just begun, by a mix of both, because its first piece may include a setup for the others.
class MeasuredWork {
 public:
  /// Returns the amount of work of a kind that is left, for the caller to set or raise.
  double& open(const std::string& kind) { return kinds_[kind].open; }
  /// Records that `amount` of the open work of a kind was done in `seconds`.
  void record_done(const std::string& kind, double amount, double seconds);
  /// Returns the seconds that the open work will take; none before any work is done.
  std::optional<double> remaining_s() const;
  /// Returns the share of the total time that has passed, in [0, 1]; 0 before any work is done.
  double share() const;

 private:
  struct Kind {
    double open = 0, done = 0, seconds = 0;
  };
  double seconds() const;

  std::map<std::string, Kind> kinds_;
};

class Progress {
 public:
  /// `expected_s`: the time of the same work when it was measured before; none: unknown.
  explicit Progress(std::string what, std::optional<double> expected_s = {});
  /// Shows that `share` of the work, in [0, 1], is done, unless the line was updated just before.
  void at(double share);
  void finish();

  /// Returns the text that is shown for a share, without the time left if the share is too small to estimate it and
  /// there is no expected time.
  static std::string state(double share, double elapsed_s, std::optional<double> expected_s);

 private:
  void show(double share, bool last);
  double elapsed_s() const;

  std::string what_;
  std::optional<double> expected_s_;
  bool terminal_;
  std::chrono::steady_clock::time_point start_;
  double shown_s_ = -1e9;
};

}  // namespace moe
