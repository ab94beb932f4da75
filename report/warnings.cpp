#include "report/warnings.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace moe::report {
namespace {

constexpr size_t kShownCases = 5;

struct Warning {
  std::string_view level, text;
};

// Lists what the page says of each status, the worst consequence first.
constexpr Warning kOfStatus[] = {
    {"wrong", "results that disagree with their reference: no figure of theirs counts"},
    {"error", "cases whose rank failed"},
    {"oom", "cases that ran out of memory"},
    {"invalid", "cases whose measurement broke its own rules (too many overruns): look at no small difference"},
    {"weak", "predictions by rows whose fit is weak"},
    {"unsupported", "cases that can't be planned, priced or run as asked"},
};

std::string_view level_of(const CaseRecord& record) {
  if (record.status != CaseStatus::ok) return name_of(record.status);
  return record.prediction.has("weak_rows") ? "weak" : "";
}

std::string reason_of(const CaseRecord& record) {
  if (!record.reason.empty()) return record.reason;
  return record.prediction.has("weak_rows") ? record.prediction.text("weak_rows", record.where) : "";
}

struct Found {
  size_t count = 0;
  Json cases = Json::array();
};

void add_of_run(const verbs::FileRun& of, Json& all) {
  const auto add = [&](const char* level, const std::string& text) {
    all.push_back({{"level", level}, {"text", fmt::format("{}: {}", of.file, text)}, {"cases", Json::array()}});
  };
  if (!of.run.ended) add("broken off", "this run was broken off, and is not complete");
  const Scalar* dirty = of.run.header.git.find("dirty");
  if (dirty != nullptr && *dirty == Scalar(true)) add("changed", "the sources were changed since their commit");
  if (of.earlier > 0) add("earlier", fmt::format("its earlier runs are not shown: {}", of.earlier));
}

}  // namespace

Json warnings_of(const std::vector<verbs::FileRun>& files) {
  std::map<std::string_view, Found> found;
  for (const verbs::FileRun& file : files)
    for (const CaseRecord& record : file.run.cases) {
      const std::string_view level = level_of(record);
      if (level.empty()) continue;
      Found& of = found[level];
      if (++of.count <= kShownCases) of.cases.push_back(fmt::format("{}: {}", record.key, reason_of(record)));
    }
  Json all = Json::array();
  for (const auto& [level, text] : kOfStatus)
    if (const auto of = found.find(level); of != found.end())
      all.push_back(
          {{"level", level}, {"text", fmt::format("{} {}", of->second.count, text)}, {"cases", of->second.cases}});
  for (const verbs::FileRun& file : files) add_of_run(file, all);
  return all;
}

}  // namespace moe::report
