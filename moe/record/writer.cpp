#include "moe/record/writer.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/record/reader.h"
#include "moe/record/record_json.h"
#include "moe/record/stamp.h"

namespace moe {

RecordWriter::RecordWriter(std::string path, std::vector<std::string> argv, std::string config_digest,
                           const Fields& ranks)
    : path_(std::move(path)) {
  // Before the lock: stamping asks git, and a child process born with the lock would keep it for a moment after a kill.
  RunHeader header = stamp_run(std::move(argv), config_digest);
  header.ranks = ranks;
  open();
  try {
    std::vector<Run> runs = read_runs(path_);
    terminate_torn_line();
    resumed_ = !runs.empty() && !runs.back().ended && runs.back().header.config_digest == config_digest;
    if (resumed_) {
      for (CaseRecord& record : runs.back().cases)
        if (record.status == CaseStatus::ok) done_.emplace(record.key, std::move(record));
      write_line(to_json_line(ResumeMark{utc_now()}));
    } else {
      write_line(to_json_line(header));
    }
  } catch (...) {
    ::close(file_);
    throw;
  }
}

RecordWriter::~RecordWriter() {
  if (file_ >= 0) ::close(file_);
}

std::string RecordWriter::done_lines() const {
  std::string lines;
  for (const auto& [key, record] : done_) lines += to_json_line(record);
  return lines;
}

void RecordWriter::take_done(const std::string& lines) {
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    auto record = std::get<CaseRecord>(record_line_from(line, path_));
    std::string key = record.key;
    done_.emplace(std::move(key), std::move(record));
  }
}

void RecordWriter::open() {
  std::error_code ignored;
  const auto folder = std::filesystem::path(path_).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  file_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) bad_input("{}: cannot be opened ({}), expected a file to append records to", path_, strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  const bool alone = regular && ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  if (alone) return;
  ::close(file_);
  require<BadInput>(regular, "{}: found no regular file, expected one to append records to", path_);
  bad_input("{}: found it in use by another process, expected to be its only writer", path_);
}

void RecordWriter::terminate_torn_line() {
  const off_t size = ::lseek(file_, 0, SEEK_END);
  char last = '\n';
  if (size > 0 && ::pread(file_, &last, 1, size - 1) == 1 && last != '\n') write_line("\n");
}

void RecordWriter::write_line(const std::string& line) {
  if (file_ < 0) return;
  ssize_t written = -1;
  do written = ::write(file_, line.data(), line.size());
  while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return;
  const std::string why = written < 0 ? strerror(errno) : "the device is full";
  ended_ = true;  // what follows a torn line would be lost with it
  bad_input("{}: cannot be written ({}), expected room for a record of {} bytes", path_, why, line.size());
}

const CaseRecord* RecordWriter::find(std::string_view key) const {
  const auto found = done_.find(key);
  return found == done_.end() ? nullptr : &found->second;
}

void RecordWriter::append(const CaseRecord& record) {
  require<WrongResult>(!ended_, "{}: record '{}' after the end of the run", path_, record.key);
  const bool added = !find(record.key) && appended_.emplace(record.key, record.status).second;
  require<WrongResult>(added, "{}: record '{}' twice in one run", path_, record.key);
  write_line(to_json_line(record));
  if (record.status == CaseStatus::ok) done_.emplace(record.key, record);
}

void RecordWriter::end() {
  require<WrongResult>(!ended_, "{}: the run was ended twice", path_);
  write_line(to_json_line(EndMark{utc_now()}));
  ended_ = true;
}

}  // namespace moe
