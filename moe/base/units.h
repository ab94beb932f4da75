#pragma once
// Element types and units. Inside the program: seconds, bytes, FLOPs (one multiply-accumulate = 2).
#include <cstdint>
#include <string>
#include <string_view>

namespace moe {

inline constexpr double kMilli = 1e-3;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr double kGiB = 1024.0 * kMiB;
inline constexpr double kFlopsPerMac = 2.0;

/// Side of the blocks of FP8 numbers that share a scale: 1 x kFp8Block of a row, or kFp8Block x kFp8Block.
inline constexpr int64_t kFp8Block = 128;

enum class DType { float32, float16, bfloat16, float64 };

int bytes_of(DType dtype);
std::string_view name_of(DType dtype);
/// Returns the type in which numbers of `dtype` are summed: float64 for float64, else float32.
constexpr DType accumulation_type(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }
/// Returns the type of that name. Throws BadInput that lists the known types; `where` names the flag or file line.
DType dtype_from(std::string_view name, std::string_view where);

/// Returns "1.250 ms", "87.2 us", "3.10 s": for messages and tables, not for files.
std::string human_seconds(double seconds);
/// Returns "24.0 MiB", "512 B".
std::string human_bytes(double bytes);
/// Returns "45.7 %" of 0.4567.
std::string percent(double share, int digits = 1);
/// Returns "1 node", "2 nodes", "3 processes".
std::string counted(size_t count, std::string_view noun);

}  // namespace moe
