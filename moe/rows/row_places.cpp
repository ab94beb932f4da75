#include "moe/rows/row_places.h"

#include "moe/base/check.h"
#include "moe/rows/row_layout.h"

namespace moe {
namespace {

// Calls body(stream, expert) in the order of cells.
template <class Body>
void for_each_cell(const RowLayout& layout, Body body) {
  for (int stream = 0; stream < layout.streams(); ++stream)
    for (int64_t e = 0; e < layout.experts(); ++e) body(stream, e);
}

void require_fits(const RowLayout& layout, int64_t most) {
  for_each_cell(layout, [&](int stream, int64_t e) {
    require<WrongResult>(layout.count(stream, e) <= most, "{} rows of expert {}, expected at most {}",
                         layout.count(stream, e), e, most);
  });
}

std::vector<int32_t> places_by_slot(const RowLayout& layout, int64_t most) {
  std::vector<int32_t> places;
  for_each_cell(layout, [&](int stream, int64_t e) {
    const int64_t rows = layout.holds(stream, e) ? layout.count(stream, e) : 0;
    for (int64_t row = 0; row < most; ++row)
      places.push_back(row < rows ? static_cast<int32_t>(layout.offset(stream, e, row) / layout.model_dim()) : -1);
  });
  return places;
}

std::vector<int32_t> places_by_row(const RowLayout& layout, int64_t most) {
  std::vector<int32_t> places(static_cast<size_t>(layout.streams() * layout.experts() * most));
  const ExpertRows all(layout);
  std::vector<Rows> at(static_cast<size_t>(layout.experts()));
  all.of_chunk(layout, {0, layout.rows()}, at);
  for_each_run(layout, {0, layout.rows()}, at, [&](int64_t from, int64_t row, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      places[static_cast<size_t>(row + i)] = static_cast<int32_t>(from / layout.model_dim() + i);
  });
  return places;
}

}  // namespace

RowPlaces::RowPlaces(const RowLayout& layout, MemorySpace& memory, RowReader by, int64_t most_rows)
    : reader(by), most(most_rows), places(memory, layout.streams() * layout.experts() * most_rows) {
  places.from_host(find_places(layout, reader, most).data());
}

void RowPlaces::send_table(const RowLayout& layout, MemorySpace& memory) {
  require_fits(layout, most);
  const std::vector<int32_t> numbers = place_table(layout);
  if (table.size() == 0) table = Array<int32_t>(memory, static_cast<int64_t>(numbers.size()));
  table.from_host(numbers.data());
}

std::vector<int32_t> find_places(const RowLayout& layout, RowReader reader, int64_t most) {
  require_fits(layout, most);
  return reader == RowReader::order ? places_by_slot(layout, most) : places_by_row(layout, most);
}

std::vector<int32_t> place_table(const RowLayout& layout) {
  std::vector<int32_t> table;
  const auto add = [&](int64_t number) { table.push_back(static_cast<int32_t>(number)); };
  for_each_cell(layout, [&](int stream, int64_t e) { add(layout.count(stream, e)); });
  std::vector<Rows> whole(static_cast<size_t>(layout.experts()));
  const ExpertRows all(layout);
  all.of_chunk(layout, {0, layout.rows()}, whole);
  for (const Rows& of_expert : whole) add(of_expert.begin);
  add(all.total());
  for (int chunk = 0; chunk < layout.degree(); ++chunk)
    for_each_cell(layout, [&](int stream, int64_t e) {
      add(layout.holds(stream, e) ? layout.cell_offset(chunk, stream, e) / layout.model_dim() : -1);
    });
  for (int chunk = 0; chunk < layout.degree(); ++chunk) add(layout.chunk(chunk).begin);
  return table;
}

}  // namespace moe
