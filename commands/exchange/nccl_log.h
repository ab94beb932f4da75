#pragma once
// The text that the programs of nccl-tests print.
#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace moe::exchange {

/// One timed size.
struct TestRow {
  double bytes = 0, seconds = 0;
  double algbw = 0, busbw = 0;  // as printed, GB/s; 0: not printed
};

/// One line of the list of devices.
struct ListedRank {
  int rank = -1;  // -1: unknown
  std::string group, host;
};

/// The output of one run of one program: who took part, and what was timed.
struct TestOutput {
  std::string path;
  std::string program;  // empty: not named
  std::vector<ListedRank> ranks;
  std::vector<TestRow> rows;
  int wrong = 0, without_time = 0, unreadable = 0;
  int wrong_results = 0;    // out of place and in place together
  bool has_failed = false;  // "Out of bounds values : N FAILED"

  bool empty() const { return ranks.empty() && rows.empty() && wrong + without_time + unreadable == 0; }
};

/// Adds a row, or counts it as wrong or without a time. `wrong` is the number of wrong results.
void add_test_row(const TestRow& row, double wrong, TestOutput& out);

/// Returns the outputs in a log, in order of appearance. Lines with different prefixes, as launchers add them, belong
/// to different outputs.
std::vector<TestOutput> read_nccl_log(std::istream& in, bool in_place);

/// Returns a line without terminal colours and without the timestamps in front of its text.
std::string plain_line(const std::string& line);

}  // namespace moe::exchange
