#include "reproduce/sweep_store.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>

#include "moe/base/check.h"
#include "moe/base/progress.h"
#include "moe/base/threads.h"

namespace moe::reproduce {
namespace {

constexpr size_t kQuietSweeps = 4;

SweptReading swept(const Reading& reading) {
  const Profile profile = profile_of(reading);
  const Grid grid = grid_of(reading);
  const auto schedules = table5_schedules();
  return {reading, verbs::summarise(verbs::sweep({profile, grid, schedules, {}, {}}), schedules)};
}

}  // namespace

std::vector<const Schedule*> table5_schedules() {
  std::vector<const Schedule*> chosen;
  for (const std::string_view name : {"tutel", "tutel-improved", "fsmoe-no-iio", "fsmoe"})
    chosen.push_back(&find_schedule(name));
  return chosen;
}

const verbs::ScheduleSummary& SweptReading::find(std::string_view schedule) const {
  const auto found = std::ranges::find(schedules, schedule, &verbs::ScheduleSummary::schedule);
  require<BadInput>(found != schedules.end(), "table 5: found schedule {}, expected one of its own", schedule);
  return *found;
}

const SweptReading& SweepStore::of(const Reading& reading) {
  prepare({reading});
  return swept_.at(reading);
}

void SweepStore::prepare(const std::vector<Reading>& readings) {
  std::vector<Reading> missing;
  for (const Reading& reading : readings)
    if (!swept_.contains(reading) && std::ranges::find(missing, reading) == missing.end()) missing.push_back(reading);
  if (missing.empty()) return;
  std::vector<SweptReading> results(missing.size());
  const size_t workers = std::min<size_t>(missing.size(), std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::exception_ptr> errors(workers);
  std::atomic<size_t> next{0};
  std::optional<Progress> progress;
  if (missing.size() > kQuietSweeps) progress.emplace("sweeps of 1458 layers");
  const auto work = [&](size_t worker) {
    try {
      for (size_t i = next++; i < missing.size(); i = next++) {
        results[i] = swept(missing[i]);
        if (worker == 0 && progress) progress->at(static_cast<double>(i + 1) / static_cast<double>(missing.size()));
      }
    } catch (...) {
      errors[worker] = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  for (size_t w = 1; w < workers; ++w) threads.push_back(start_thread("sweep", [&work, w] { work(w); }));
  work(0);
  threads.clear();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  if (progress) progress->done();
  for (SweptReading& result : results) swept_.emplace(result.reading, std::move(result));
}

}  // namespace moe::reproduce
