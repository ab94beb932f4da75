#pragma once
// Holds where a layout's rows lie as a device's kernels look them up: a row's place is its offset / M.
#include <cstdint>
#include <vector>

#include "moe/device/memory.h"

namespace moe {

class RowLayout;

/// Says who looks rows up, and by what.
///   order     by [stream][expert][row of `most`]; -1 where the layout has no such row
///   experts   by row of ExpertRows
enum class RowReader : uint8_t { order, experts };

struct RowPlaces {
  /// Finds the places for the layout's counts as they are. No cell ever has more than `most_rows`.
  RowPlaces(const RowLayout& layout, MemorySpace& memory, RowReader by, int64_t most_rows);
  /// Sends what a kernel finds the places for other counts by: place_table().
  void send_table(const RowLayout& layout, MemorySpace& memory);

  RowReader reader;
  int64_t most;
  Array<int32_t> places, table;
};

/// Finds the places on the host. Throws WrongResult where a cell has more rows than `most`.
std::vector<int32_t> find_places(const RowLayout& layout, RowReader reader, int64_t most);

/// Tells a kernel all that places follow from, in rows, with cells [stream][expert]: the rows of each cell; the first
/// row of each expert where they compute, and the end; the first place of each cell in each chunk, -1 where there is
/// none; the first row of T_rank of each chunk.
std::vector<int32_t> place_table(const RowLayout& layout);

}  // namespace moe
