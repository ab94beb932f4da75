#include "verbs/record_files.h"

#include <utility>

#include "moe/base/check.h"
#include "moe/base/file_text.h"
#include "verbs/model_documents.h"

namespace moe::verbs {
namespace {

std::vector<Run> runs_of(const std::string& file) {
  if (!unpacked_name(file).ends_with(".json")) return read_runs(file);
  return {run_of_documents(text_of_file(file, "what modelbench --json printed"), file)};
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

}  // namespace moe::verbs
