#pragma once
// Appends records to a file and resumes interrupted runs.
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

/// Appends records to one file. Each line is one write(2) to a file opened for appending, so a killed process loses at
/// most the line it was writing, and existing lines never change. A file has one writer (a lock), and a writer is used
/// by one thread.
class RecordWriter {
 public:
  /// Opens or creates `path` and the folders above it. If the last run in the file has no end line and answers the same
  /// question (the same digest, machine.h), that run is resumed. After a complete run, a new run begins; if that run
  /// answered another question, this is an error if the user named the file, else a line on stderr reports it. If the
  /// question sets `overwrite`, the file's contents are replaced. Nothing changes before the first line is appended, so
  /// a command that fails without a case leaves the file as it was. Throws BadInput and leaves the file unchanged if
  /// the last run answers another question and is incomplete or the user named the file, if it is not a records file,
  /// can't be written, or another process writes to it.
  RecordWriter(std::string path, const Question& question);
  /// Makes a writer that writes nothing, for processes that run the command beside the process that writes.
  explicit RecordWriter(std::string path) : path_(std::move(path)) {}
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// Returns whether this writer continues an interrupted run.
  bool resumed() const { return resumed_; }
  /// Finds the ok case of that key that the resumed run already has; null if it must still be done.
  const CaseRecord* find(std::string_view key) const;
  /// Finds the case of that key with any status, except one that ran out of memory or failed, because it may end
  /// differently now.
  const CaseRecord* answered(std::string_view key) const;
  size_t done() const { return done_.size(); }
  /// Returns all answered cases as lines, which take_done hands to writers of other processes, which write nothing.
  std::string done_lines() const;
  void take_done(const std::string& lines);

  /// Appends a case. Throws WrongResult for a key that this writer appended before or that is done already.
  void append(const CaseRecord& record);
  /// Appends a case, unless `find` has one of its key.
  void append_new(const CaseRecord& record);
  /// Appends a group as one line, whole or not at all. `find` knows its cases only once they are read back.
  void append(const CaseGroup& group);
  /// Marks the run as complete and records the readings of its GPUs (gpu_watch.h); nothing can be appended afterwards.
  void end();
  const std::string& path() const { return path_; }

 private:
  void open();
  void keep(CaseRecord record);
  void require_new(const std::string& key);
  void check_same_question(const Run& last, const RunHeader& now, const Asked& asked) const;
  void terminate_torn_line();
  /// Writes a line, after the run's first line if that is not written yet.
  void write_line(const std::string& line);
  void put(const std::string& line);

  std::string path_;
  int file_ = -1;
  std::string head_;  // the run's first line; empty once it is written
  bool created_ = false, empties_ = false, resumed_ = false, ended_ = false;
  std::optional<GpuWatch> gpus_;                                  // the watch of a process that uses GPUs
  std::map<std::string, CaseRecord, std::less<>> done_, not_ok_;  // resumed cases by key
  std::unordered_set<std::string> appended_;
};

/// Writes the records of an answer and prints it. If the records can't be written, the answer is printed anyway and
/// then the reason is thrown (Unwritable, files.h).
void print_with_records(const std::function<void()>& write, const std::function<void()>& print);

}  // namespace moe
