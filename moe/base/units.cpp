#include "moe/base/units.h"

#include <cmath>

#include "moe/base/enum_array.h"
#include "moe/base/registry.h"

namespace moe {
namespace {

struct DTypeRow {
  std::string_view name;
  DType dtype;
  int bytes;
};
constexpr EnumArray<DType, DTypeRow, 4> kDTypes{{{{"float32", DType::float32, 4},
                                                  {"float16", DType::float16, 2},
                                                  {"bfloat16", DType::bfloat16, 2},
                                                  {"float64", DType::float64, 8}}}};
static_assert(is_in_enum_order(kDTypes, &DTypeRow::dtype));

}  // namespace

int bytes_of(DType dtype) { return kDTypes[dtype].bytes; }
std::string_view name_of(DType dtype) { return kDTypes[dtype].name; }
DType dtype_from(std::string_view name, std::string_view where) { return find_named(kDTypes, name, where).dtype; }

std::string human_seconds(double seconds) {
  const double size = std::abs(seconds);
  if (size >= 1e6) return fmt::format("{:.3g} s", seconds);
  if (size >= 60) return fmt::format("{}m{:02}s", int(seconds) / 60, int(seconds) % 60);
  if (size >= 1) return fmt::format("{:.2f} s", seconds);
  if (size >= 1e-3) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string percent(double share, int digits) { return fmt::format("{:.{}f} %", 100 * share, digits); }

std::string human_bytes(double bytes) {
  if (bytes >= kGiB) return fmt::format("{:.2f} GiB", bytes / kGiB);
  if (bytes >= kMiB) return fmt::format("{:.1f} MiB", bytes / kMiB);
  if (bytes >= 1024) return fmt::format("{:.1f} KiB", bytes / 1024);
  return fmt::format("{:.0f} B", bytes);
}

std::string counted(size_t count, std::string_view noun) {
  const std::string_view plural = noun.ends_with('s') || noun.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : plural);
}

}  // namespace moe
