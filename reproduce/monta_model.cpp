#include "reproduce/monta_model.h"

#include "moe/base/check.h"
#include "moe/base/units.h"
#include "reproduce/printed_rows.h"

namespace moe::reproduce {
namespace {

constexpr double kMillionBytes = 1e6;
constexpr double kTable8Bytes = 256e6;  // of the 8K sequence
constexpr int kTable8Tokens = 8;        // thousands

const PrintedPrimitive& find_row(const std::vector<PrintedPrimitive>& rows, std::string_view strategy,
                                 std::string_view primitive) {
  for (const PrintedPrimitive& row : rows)
    if (row.strategy == strategy && row.primitive == primitive) return row;
  bad_input("monta-table8: found no {} of {}, expected one", primitive, strategy);
}

}  // namespace

std::string_view name_of(MontaStrategy strategy) {
  static constexpr std::array<std::string_view, 4> kNames{"baseline", "o1", "o2", "o3"};
  return kNames[static_cast<size_t>(strategy)];
}

double monta_seconds(MontaStrategy strategy, const MontaTimes& t, int chunks) {
  const double n = chunks;
  switch (strategy) {
    case MontaStrategy::baseline:
      return t.alltoall;
    case MontaStrategy::o1:
      return t.alltoall + t.allgather;
    case MontaStrategy::o2:
      return t.alltoall < t.allgather + t.copy ? t.alltoall + n * (t.allgather + t.copy)
                                               : n * t.alltoall + t.allgather + t.copy;
    case MontaStrategy::o3:
      break;
  }
  return t.alltoall < t.allgather ? t.alltoall + n * t.allgather + t.copy : n * t.alltoall + t.allgather + t.copy;
}

TimeLine line_through(double bytes_1, double seconds_1, double bytes_2, double seconds_2) {
  const double beta = (seconds_2 - seconds_1) / (bytes_2 - bytes_1);
  return {seconds_1 - beta * bytes_1, beta};
}

double MontaPlatform::ideal_alltoall_s(double bytes) const {
  return bytes * (experts - 1) / experts / inter_bytes_per_s;
}

double MontaPlatform::ideal_allgather_s(double bytes) const {
  return bytes * (tensor - 1) / tensor / intra_bytes_per_s;
}

MontaTimes MontaPlatform::times(MontaStrategy strategy, double bytes, int chunks) const {
  if (strategy == MontaStrategy::baseline) return {alltoall.seconds(bytes), 0, 0};
  const double chunk = bytes / chunks;
  return {alltoall.seconds(chunk / tensor), allgather.seconds(chunk), chunks > 1 ? chunk / copy_bytes_per_s : 0};
}

double MontaPlatform::seconds(MontaStrategy strategy, double bytes, int chunks) const {
  if (strategy == MontaStrategy::baseline || strategy == MontaStrategy::o1) chunks = 1;
  return monta_seconds(strategy, times(strategy, bytes, chunks), chunks);
}

MontaPlatform table8_platform() {
  const auto rows = printed_monta_table8();
  MontaPlatform p;
  const auto line = [&](const PrintedPrimitive& a, const PrintedPrimitive& b, auto ideal) {
    const double bytes_a = a.volume_m * kMillionBytes, bytes_b = b.volume_m * kMillionBytes;
    return line_through(bytes_a, ideal(bytes_a) / a.efficiency, bytes_b, ideal(bytes_b) / b.efficiency);
  };
  p.alltoall = line(find_row(rows, "o2-o3-4chunks", "alltoall"), find_row(rows, "baseline", "alltoall"),
                    [&](double bytes) { return p.ideal_alltoall_s(bytes); });
  p.allgather = line(find_row(rows, "o2-o3-4chunks", "allgather"), find_row(rows, "o1", "allgather"),
                     [&](double bytes) { return p.ideal_allgather_s(bytes); });
  const PrintedPrimitive& copy = find_row(rows, "o2-o3-4chunks", "d2d");
  p.copy_bytes_per_s = copy.volume_m * kMillionBytes / (copy.latency_ms * kMilli);
  return p;
}

double monta_bytes(int thousand_tokens) { return kTable8Bytes * thousand_tokens / kTable8Tokens; }

}  // namespace moe::reproduce
