#pragma once
// Appends records to a file; takes up a run that was broken off.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "moe/record/record.h"

namespace moe {

/// Each line is one write(2) to a file opened for appending: a killed process loses at most the line it was writing,
/// and nothing that is in the file is ever changed. One writer a file (a lock), one thread a writer.
class RecordWriter {
 public:
  /// Opens or creates `path`, and the folders above it. Where its last run has no end line and the same digest, that
  /// run goes on; else a new one begins. `ranks`: of the stamp.
  /// Throws BadInput where the file is no records file, can't be written, or another process writes it.
  RecordWriter(std::string path, std::vector<std::string> argv, std::string config_digest,
               const Fields& ranks = {});
  /// Writes nothing: of the processes that run the same verb as the one that writes.
  explicit RecordWriter(std::string path) : path_(std::move(path)) {}
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// Whether this writer goes on with a run that was broken off.
  bool resumed() const { return resumed_; }
  /// The case of that key that this run has already, with status ok; null where it is still to be done.
  const CaseRecord* find(std::string_view key) const;
  size_t done() const { return done_.size(); }
  /// All such cases, as lines; and what a writer of nothing is told that the other one has.
  std::string done_lines() const;
  void take_done(const std::string& lines);

  /// Throws WrongResult for a key that this writer appended before, or that is done.
  void append(const CaseRecord& record);
  /// Marks the run complete; nothing can be appended afterwards.
  void end();
  const std::string& path() const { return path_; }

 private:
  void open();
  void terminate_torn_line();
  void write_line(const std::string& line);

  std::string path_;
  int file_ = -1;
  bool resumed_ = false, ended_ = false;
  std::map<std::string, CaseRecord, std::less<>> done_;
  std::map<std::string, CaseStatus, std::less<>> appended_;
};

}  // namespace moe
