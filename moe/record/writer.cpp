#include "moe/record/writer.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <optional>
#include <sstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/files.h"
#include "moe/base/log.h"
#include "moe/record/gpu_watch.h"
#include "moe/record/machine.h"
#include "moe/record/reader.h"
#include "moe/record/record_json.h"

namespace moe {

namespace {

/// Returns a text on the first difference between the headers of two runs, for messages such as "a run ...".
std::string header_difference(const RunHeader& old, const RunHeader& now) {
  if (old.schema != now.schema) return fmt::format("in format {}", old.schema);
  if (old.git != now.git || old.build != now.build || old.compiler != now.compiler || old.libraries != now.libraries)
    return "by another build";
  if (old.machine != now.machine) return "on another machine";
  if (old.ranks != now.ranks) return "with other ranks";
  std::string flags;
  for (size_t i = 1; i < old.argv.size(); ++i) flags += (i > 1 ? " " : "") + old.argv[i];
  return fmt::format("with other flags, files or environment ({})", quoted_text(flags));
}

}  // namespace

RecordWriter::RecordWriter(std::string path, const RunInputs& inputs) : path_(std::move(path)) {
  const RunHeader header = stamp_run(inputs);
  open();
  try {
    std::optional<Run> last = read_open_run(path_);
    empties_ = last && inputs.invocation.overwrite;
    if (empties_) last.reset();
    if (last) check_same_question(*last, header, inputs.invocation);
    resumed_ = last && !last->ended && last->header.config_digest == header.config_digest;
    head_ = resumed_ ? to_json_line(ResumeMark{utc_now()}) : to_json_line(header);
    if (resumed_)
      for (CaseRecord& record : last->cases) keep(std::move(record));
  } catch (...) {
    ::close(file_);
    throw;
  }
  if (uses_cuda()) gpus_.emplace(open_nvml());
}

void RecordWriter::check_same_question(const Run& last, const RunHeader& now, const Invocation& invocation) const {
  const bool nothing = !last.ended && last.cases.empty();  // for example if invalid flags were noticed late
  if (nothing || last.header.config_digest == now.config_digest) return;
  const std::string what =
      fmt::format("a run {}{}", last.ended ? "" : "that was interrupted, ", header_difference(last.header, now));
  if (invocation.has_named_file || !last.ended)
    bad_input("{}: found {}, expected one with the same flags, files, program and machine{}{}", path_, what,
              invocation.alternative.empty() ? "" : ", ", invocation.alternative);
  log_info(fmt::format("{}: found {}; appending a new run", path_, what));
}

RecordWriter::~RecordWriter() {
  if (created_ && !head_.empty()) ::unlink(path_.c_str());
  if (file_ >= 0) ::close(file_);
}

std::string RecordWriter::finished_case_lines() const {
  std::string lines;
  for (const auto& records : {std::cref(done_), std::cref(not_ok_)})
    for (const auto& [key, record] : records.get()) lines += to_json_line(record);
  return lines;
}

void RecordWriter::add_finished_cases(const std::string& lines) {
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) keep(std::get<CaseRecord>(record_line_from(line, path_)));
}

void RecordWriter::keep(CaseRecord record) {
  if (record.status == CaseStatus::oom || record.status == CaseStatus::error) return;
  auto& kept = record.status == CaseStatus::ok ? done_ : not_ok_;
  std::string key = record.key;
  kept.emplace(std::move(key), std::move(record));
}

void RecordWriter::open() {
  make_folders_above(path_);
  constexpr int kHow = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC;
  file_ = ::open(path_.c_str(), kHow | O_EXCL, 0644);
  created_ = file_ >= 0;
  if (!created_) file_ = ::open(path_.c_str(), kHow, 0644);
  if (file_ < 0)
    throw Unwritable(
        fmt::format("{}: cannot be opened ({}), expected a file to append records to", path_, strerror(errno)));
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
  if (size > 0 && ::pread(file_, &last, 1, size - 1) == 1 && last != '\n') put("\n");
}

void RecordWriter::write_line(const std::string& line) {
  if (file_ < 0) return;
  if (const std::string head = std::exchange(head_, {}); !head.empty()) {
    if (empties_ && ::ftruncate(file_, 0) != 0) bad_input("{}: cannot be emptied ({})", path_, strerror(errno));
    terminate_torn_line();
    put(head);
  }
  put(line);
}

void RecordWriter::put(const std::string& line) {
  ssize_t written = -1;
  do written = ::write(file_, line.data(), line.size());
  while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return;
  const std::string why = written < 0 ? strerror(errno) : "the device is full";
  ended_ = true;  // the reader would drop lines after an incomplete line
  throw Unwritable(
      fmt::format("{}: cannot be written ({}), expected room for a record of {} bytes", path_, why, line.size()));
}

void print_with_records(const std::function<void()>& write, const std::function<void()>& print) {
  std::exception_ptr unwritable;
  try {
    write();
  } catch (const Unwritable&) {
    unwritable = std::current_exception();
  }
  print();
  if (unwritable) std::rethrow_exception(unwritable);
}

const CaseRecord* RecordWriter::find(std::string_view key) const {
  const auto found = done_.find(key);
  return found == done_.end() ? nullptr : &found->second;
}

const CaseRecord* RecordWriter::finished_case(std::string_view key) const {
  if (const CaseRecord* ok = find(key)) return ok;
  const auto found = not_ok_.find(key);
  return found == not_ok_.end() ? nullptr : &found->second;
}

void RecordWriter::require_new(const std::string& key) {
  require<WrongResult>(!ended_, "{}: record '{}' after the end of the run", path_, key);
  const bool added = !find(key) && appended_.insert(key).second;
  require<WrongResult>(added, "{}: record '{}' twice in one run", path_, key);
}

void RecordWriter::append(const CaseRecord& record) {
  require_new(record.key);
  write_line(to_json_line(record));
  if (record.status == CaseStatus::ok) done_.emplace(record.key, record);
}

void RecordWriter::append_new(const CaseRecord& record) {
  if (find(record.key) == nullptr) append(record);
}

void RecordWriter::append(const CaseGroup& group) {
  for (const CaseRecord& record : group.cases) require_new(record.key);
  if (!group.cases.empty()) write_line(to_json_line(group));
}

void RecordWriter::end() {
  require<WrongResult>(!ended_, "{}: the run was ended twice", path_);
  EndMark mark{utc_now(), conditions_now()};
  if (gpus_)
    for (const auto& [name, value] : gpus_->readings_summary()) mark.conditions.set(name, value);
  write_line(to_json_line(mark));
  ended_ = true;
}

}  // namespace moe
