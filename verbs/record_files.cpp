#include "verbs/record_files.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/shell_word.h"
#include "verbs/model_documents.h"

namespace moe {
namespace {

/// Unpacks a file by gzip into a pipe, to be read once.
class Unpacked {
 public:
  explicit Unpacked(const std::string& file)
      : pipe_(::popen(fmt::format("exec gzip -dc -- {} 2>/dev/null", shell_word(file)).c_str(), "r")) {
    require<BadInput>(pipe_ != nullptr, "{}: gzip cannot be started; expected it, or the file unpacked", file);
  }
  ~Unpacked() { end(); }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;

  std::string path() const { return fmt::format("/dev/fd/{}", ::fileno(pipe_)); }
  /// Returns whether all of it was unpacked.
  bool end() { return pipe_ == nullptr || ::pclose(std::exchange(pipe_, nullptr)) == 0; }

 private:
  std::FILE* pipe_;
};

// Names the file in the place of the pipe that it was read from.
std::string renamed(std::string message, const std::string& from, const std::string& to) {
  if (message.starts_with(from)) message.replace(0, from.size(), to);
  return message;
}

// `path` is what holds the file's text now.
std::vector<Run> runs_in(const std::string& path, const std::string& file) {
  if (!file.ends_with(".json") && !file.ends_with(".json.gz")) return read_runs(path);
  std::ifstream in(path);
  require<BadInput>(in.is_open(), "{}: found no readable file, expected records", file);
  return {run_of_documents({std::istreambuf_iterator<char>(in), {}}, file)};
}

std::vector<Run> runs_of(const std::string& file) {
  if (!file.ends_with(".gz")) return runs_in(file, file);
  require<BadInput>(std::filesystem::is_regular_file(file), "{}: found no readable file, expected records (JSON Lines)",
                    file);
  Unpacked unpacked(file);
  const std::string path = unpacked.path();
  std::vector<Run> runs;
  std::string fault;
  try {
    runs = runs_in(path, file);
  } catch (const BadInput& error) {
    fault = renamed(error.what(), path, file);
  }
  require<BadInput>(unpacked.end(), "{}: found no file that gzip can unpack, expected gzipped records", file);
  require<BadInput>(fault.empty(), "{}", fault);
  return runs;
}

}  // namespace

std::vector<FileRun> read_files(const std::vector<std::string>& files) {
  std::vector<FileRun> read;
  for (const std::string& file : files) {
    std::vector<Run> runs = runs_of(file);
    std::erase_if(runs, [](const Run& run) { return run.cases.empty(); });
    require<BadInput>(!runs.empty(), "{}: found no case, expected records of a verb that ran or planned some", file);
    read.push_back({file, std::move(runs.back()), runs.size() - 1});
  }
  return read;
}

}  // namespace moe
