#pragma once
// The text output of the programs of nccl-tests.
#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace moe::exchange {

/// One row of the table: a size with its time.
struct TestRow {
  double bytes = 0, seconds = 0;
  double algbw = 0, busbw = 0;  // as printed, GB/s; 0: not printed
};

/// One line of the list of devices.
struct ListedRank {
  int rank = -1;  // -1: unknown
  std::string group, host;
};

/// The output of one run of one program: its ranks and its measurements.
struct TestOutput {
  std::string path;
  std::string program;  // empty: the output names none
  std::vector<ListedRank> ranks;
  std::vector<TestRow> rows;
  int wrong = 0, without_time = 0, unreadable = 0;
  int wrong_results = 0;    // out of place and in place together
  bool has_failed = false;  // the output has "Out of bounds values : N FAILED"

  bool empty() const { return ranks.empty() && rows.empty() && wrong + without_time + unreadable == 0; }
};

/// Adds a row, or counts it as wrong or as one without a time. `wrong`: the number of wrong results.
void add_test_row(const TestRow& row, double wrong, TestOutput& out);

/// Returns the outputs in a log, in order of appearance. Lines with different prefixes, as launchers add them, belong
/// to different outputs.
std::vector<TestOutput> read_nccl_log(std::istream& in, bool in_place);

/// Returns a line without terminal colours and without timestamps before its text.
std::string strip_log_decoration(const std::string& line);

}  // namespace moe::exchange
