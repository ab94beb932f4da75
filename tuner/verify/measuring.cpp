#include "tuner/verify/measuring.h"

#include <fmt/format.h>
#include <optional>

#include "commands/shared/run/op_records.h"
#include "moe/base/check.h"
#include "moe/base/terminal.h"
#include "tuner/fit.h"

namespace moe::tuner {
namespace {

constexpr int kRepetitions = 5;
constexpr double kMaxOpsS = 10;  // longest time for operations that nothing paces

}  // namespace

MeasuredTarget measured_target(const commands::Target& target, RecordWriter& writer,
                               const std::vector<commands::LayerJob>& layers, const Measuring& measuring) {
  require<BadInput>(target.backend() != kNcclOnOneGpu,
                    "{}: found ranks that share a GPU and so use no network, expected a GPU for each rank",
                    target.cluster.name);
  if (target.measured && !target.emulated) return {{target.cluster, {}}, target.cluster.file};
  std::optional<Progress> progress;
  if (target.is_leader())
    progress.emplace(fmt::format("1/2 measuring {}{}", target.cluster.name, target.emulated ? " (emulated)" : ""));
  commands::OpRequest request;
  request.settings.repetitions = kRepetitions;
  request.settings.timeout_s = measuring.timeout_s;
  if (!target.emulated) request.settings.max_s = kMaxOpsS;
  request.sizes = measure::sizes_for(measuring.dtype, target.ranks.device);
  MeasuredTarget measured{commands::measure_and_fit(target, writer, request, layers,
                                                    [&](double share) {
                                                      if (progress) progress->at(share);
                                                    }),
                          measuring.path};
  if (!progress) return measured;
  progress->finish();
  save_profile(measured.fitted.profile, measuring.path);
  return measured;
}

std::string sibling_path(const std::string& records_path, const std::string& ending) {
  const size_t dot = records_path.rfind(".jsonl");
  return (dot == std::string::npos ? records_path : records_path.substr(0, dot)) + ending;
}

}  // namespace moe::tuner
