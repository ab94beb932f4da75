#pragma once
// Appends records to a file; takes up a run that was broken off.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "moe/record/gpu_watch.h"
#include "moe/record/record.h"

namespace moe {

struct Run;

/// Appends to one file. Each line is one write(2) to a file opened for appending: a killed process loses at most the
/// line it was writing, and nothing that is in the file is ever changed. One writer a file (a lock), one thread a
/// writer.
class RecordWriter {
 public:
  /// Opens or creates `path`, and the folders above it. Where its last run has no end line and answers the same
  /// question (its digest, machine.h), that run goes on. Behind one that is complete a new one begins; of another
  /// question only where the question does not name the file, and a line on stderr says so. Whatever the file holds
  /// makes room where the question overwrites. Nothing changes before the first line is appended: a verb that fails
  /// without a case leaves the file as it was.
  /// Throws BadInput where the last run is of another question and not complete, or the file named; where the file is
  /// no records file, can't be written, or another process writes it. Then it is as it was.
  RecordWriter(std::string path, const Question& question);
  /// Makes a writer that writes nothing, for processes that run the verb beside the one that writes.
  explicit RecordWriter(std::string path) : path_(std::move(path)) {}
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// Returns whether this writer goes on with a run that was broken off.
  bool resumed() const { return resumed_; }
  /// Finds the ok case of that key that this run has already; null where it is still to be done.
  const CaseRecord* find(std::string_view key) const;
  /// Finds the case of that key whatever its status, but for one that ran out of memory or failed, which may end
  /// otherwise now.
  const CaseRecord* answered(std::string_view key) const;
  size_t done() const { return done_.size(); }
  /// Returns all answered cases as lines; take_done tells a writer of nothing what the other one has.
  std::string done_lines() const;
  void take_done(const std::string& lines);

  /// Appends a case. Throws WrongResult for a key that this writer appended before, or that is done.
  void append(const CaseRecord& record);
  /// Appends a case, unless `find` has one of its key.
  void append_new(const CaseRecord& record);
  /// Appends a group as one line, whole or not at all. `find` knows its cases only once they are read back.
  void append(const CaseGroup& group);
  /// Marks the run complete, and says what was seen of its GPUs (gpu_watch.h); nothing can be appended afterwards.
  void end();
  const std::string& path() const { return path_; }

 private:
  void open();
  void keep(CaseRecord record);
  void require_new(const std::string& key);
  void check_same_question(const Run& last, const RunHeader& now, const Asked& asked) const;
  void terminate_torn_line();
  /// Begins the run, if this is its first line.
  void write_line(const std::string& line);
  void put(const std::string& line);

  std::string path_;
  int file_ = -1;
  std::string head_;  // the run's first line, to be written; empty: it is
  bool created_ = false, empties_ = false, resumed_ = false, ended_ = false;
  std::optional<GpuWatch> gpus_;                                  // of a process that uses some
  std::map<std::string, CaseRecord, std::less<>> done_, not_ok_;  // by key
  std::unordered_set<std::string> appended_;
};

/// Writes the records of an answer and prints it. An answer whose records cannot be written is printed all the same,
/// and then the reason is thrown (Unwritable, files.h).
void print_with_records(const std::function<void()>& write, const std::function<void()>& print);

}  // namespace moe
