#pragma once
// The terminal that results are printed on.
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace moe {

/// Returns the width of the output in columns: COLUMNS if it is set, else that of the terminal on stdout, at least 40.
/// Empty: stdout is no terminal, and lines may be of any length.
std::optional<int> output_columns();

/// Makes the output so wide that tables fold and leave out nothing, here and in processes that are started: COLUMNS.
void widen_output();
/// The columns of such an output.
inline constexpr int kWidened = 1000000;

/// The most columns of help, answers and lines under tables, however wide the output is.
inline constexpr int kMostColumns = 120;
/// Returns the width of the output in columns, but at most so many.
int output_columns_up_to(int most);

/// Breaks a line between words so that it fits the columns; what follows is indented.
std::string fitted_line(std::string_view line, size_t indent = 2, std::optional<int> columns = output_columns());
/// Breaks each line of a text likewise, but for those with a command that a reader copies.
std::string fitted_text(std::string_view text, size_t indent = 2);

// Progress with an estimate of the time left, on stderr: one line that is rewritten on a terminal, a few lines
// elsewhere.

/// Estimates from the seconds of the work so far how long the rest takes. Work is of several kinds and has amounts that
/// grow with it: within a kind its own seconds an amount count, of a kind that has not begun those of all work so far,
/// and of one that has just begun something between them: its first piece may have paid for what all of them need.
class MeasuredWork {
 public:
  /// Returns the amount of a kind that is to be done yet, to be set or raised.
  double& open(const std::string& kind) { return kinds_[kind].open; }
  /// Notes that so much of what is open was done, in this time.
  void did(const std::string& kind, double amount, double seconds);
  /// Returns the seconds that the open work takes; none before some work is done.
  std::optional<double> left_s() const;
  /// Returns the share of the time that is over, in [0, 1]; 0 before some work is done.
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
  /// `expected_s`: the time that the work took when it was measured before.
  explicit Progress(std::string what, std::optional<double> expected_s = {});
  /// Shows that this share of the work, in [0, 1], is done, unless something was shown just before.
  void at(double share);
  void done();

  /// Returns the text that is shown for a share; of one that is too small to tell, and without an expected time, it
  /// says no time left.
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
