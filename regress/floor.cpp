#include "regress/floor.h"

#include <filesystem>
#include <fmt/format.h>

#include "moe/record/reader.h"
#include "moe/record/stamp.h"

namespace moe::regress {

std::string fingerprint_of(const RunHeader& header) {
  if (header.machine.has("fingerprint")) return header.machine.text("fingerprint", "machine");
  std::string all;
  for (const char* name : {"cpu", "cores", "memory_bytes", "architecture"})
    if (const Scalar* value = header.machine.find(name))
      std::visit([&](const auto& v) { all += fmt::format("{};", v); }, *value);
  return all;
}

std::optional<Floor> read_floor(const std::string& path) {
  const std::string file = path.empty() ? kDefaultFloor : path;
  if (path.empty() && !std::filesystem::exists(file)) return std::nullopt;
  const std::string here = fingerprint_of(stamp_run({}));
  std::optional<Floor> floor;
  for (const Run& run : read_runs(file)) {
    if (fingerprint_of(run.header) != here) continue;
    for (const CaseRecord& record : run.cases)
      if (record.key == kFloorKey)
        floor = Floor{record.summary.number("within_session", record.where),
                      record.summary.number("between_sessions", record.where), here};
  }
  return floor;
}

}  // namespace moe::regress
