#pragma once
// The writer of records files, which also resumes interrupted runs.
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
/// most the line that it was writing, and existing lines never change. A lock allows only one writer per file; a writer
/// must be used by only one thread.
class RecordWriter {
 public:
  /// Opens or creates `path` and the folders above it. If the last run in the file is incomplete and has the same
  /// digest (stamp_run), it is resumed; otherwise a new run begins, and a message is logged if the last run has another
  /// digest. With Asked::overwrite, the file's contents are replaced. The file changes only when the first line is
  /// appended, so a command that fails before its first case leaves it as it was. Throws BadInput if the last run has
  /// another digest and is incomplete or in a file that the user named, if the file is not a records file or can't be
  /// written, or if another process writes to it.
  RecordWriter(std::string path, const RunInputs& inputs);
  /// Creates a writer that writes nothing, for the processes of a run that do not write the records.
  explicit RecordWriter(std::string path) : path_(std::move(path)) {}
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// Returns whether this writer continues an interrupted run.
  bool resumed() const { return resumed_; }
  /// Returns the ok case of that key in the resumed run; null if it must still be measured.
  const CaseRecord* find(std::string_view key) const;
  /// Returns the case of that key in the resumed run with any status except oom and error, which may end differently
  /// now.
  const CaseRecord* finished_case(std::string_view key) const;
  size_t done() const { return done_.size(); }
  /// These transfer all answered cases to the writers of other processes, as lines.
  std::string finished_case_lines() const;
  void add_finished_cases(const std::string& lines);

  /// Appends a case. Throws WrongResult if this writer has appended the key already or find() has it.
  void append(const CaseRecord& record);
  /// Appends a case, unless find() has its key.
  void append_new(const CaseRecord& record);
  /// Appends a group as one line. find() returns its cases only in a later, resumed run.
  void append(const CaseGroup& group);
  /// Marks the run as complete and records the GPU readings (gpu_watch.h). Nothing can be appended afterwards.
  void end();
  const std::string& path() const { return path_; }

 private:
  void open();
  void keep(CaseRecord record);
  void require_new(const std::string& key);
  void check_same_question(const Run& last, const RunHeader& now, const Invocation& invocation) const;
  void terminate_torn_line();
  /// Writes a line; before the first one, also the run's header.
  void write_line(const std::string& line);
  void put(const std::string& line);

  std::string path_;
  int file_ = -1;
  std::string head_;  // the run's header; empty after it was written
  bool created_ = false, empties_ = false, resumed_ = false, ended_ = false;
  std::optional<GpuWatch> gpus_;                                  // set if the process uses GPUs
  std::map<std::string, CaseRecord, std::less<>> done_, not_ok_;  // resumed cases by key
  std::unordered_set<std::string> appended_;
};

/// Writes the records of an answer and prints the answer. If the records can't be written, the answer is printed
/// nevertheless, and then Unwritable (files.h) is thrown.
void print_with_records(const std::function<void()>& write, const std::function<void()>& print);

}  // namespace moe
