#include "moe/sharding/row_layout.h"

#include <cstring>

#include "moe/base/check.h"
#include "moe/tensor/cpu/math.h"

namespace moe {
namespace {

// Visits the runs of one expert, whose first row is `at`.
template <class Visit>
void for_each_run_of(const RowLayout& layout, int64_t expert, Rows rows, int64_t at, const Visit& visit) {
  for (int chunk = 0; chunk < layout.degree(); ++chunk) {
    const Rows whole = layout.chunk(chunk);
    const Rows part{std::max(rows.begin, whole.begin), std::min(rows.end, whole.end)};
    const int64_t step = layout.streams() == 1 ? std::max<int64_t>(part.count(), 1) : 1;
    for (int64_t row = part.begin; row < part.end; row += step)
      for (int stream = 0; stream < layout.streams(); ++stream) {
        const Rows run = layout.rows_of(stream, expert, {row, row + step});
        if (run.count() == 0 || !layout.holds(stream, expert)) continue;
        visit(layout.offset(stream, expert, run.begin), at, run.count());
        at += run.count();
      }
  }
}

// Copies the runs of all experts in parallel, divided by expert; `bytes` is the size of all rows together.
template <class Copy>
void copy_runs(const RowLayout& layout, Rows rows, std::span<const Rows> experts, int64_t bytes, Copy copy) {
  parallel_for(layout.experts(), bytes / std::max<int64_t>(1, layout.experts()), [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) for_each_run_of(layout, e, rows, experts[e].begin, copy);
  });
}

}  // namespace

RowLayout::RowLayout(Shape shape) : shape_(std::move(shape)) {
  require<BadInput>(shape_.degree >= 1, "degree: found {}, expected >= 1", shape_.degree);
  cell_of_.assign(shape_.streams * shape_.experts, -1);
  for (size_t i = 0; i < shape_.cells.size(); ++i) {
    const Cell& cell = shape_.cells[i];
    if (i == 0 || cell.piece != shape_.cells[i - 1].piece) piece_cells_.push_back(i);
    cell_of_[cell.stream * shape_.experts + cell.expert] = static_cast<int64_t>(i);
  }
  pieces_ = static_cast<int>(piece_cells_.size());
  piece_cells_.push_back(shape_.cells.size());
  chunk_of_.resize(shape_.rows);
  for (int chunk = 0; chunk < shape_.degree; ++chunk) {
    const Rows rows = chunks_.emplace_back(chunk_rows(shape_.rows, shape_.degree, chunk));
    for (int64_t row = rows.begin; row < rows.end; ++row) chunk_of_[row] = chunk;
  }
  counts_.assign(cell_of_.size(), shape_.rows);
  starts_.resize(static_cast<size_t>(shape_.degree) * shape_.cells.size());
  piece_start_.resize(shape_.degree * pieces_);
  piece_size_.resize(piece_start_.size());
  set_counts(std::vector<int64_t>(counts_));
}

void RowLayout::set_counts(std::span<const int64_t> counts) {
  require_equal(counts.size(), counts_.size(), "counts of rows");
  std::copy(counts.begin(), counts.end(), counts_.begin());
  elements_ = 0;
  if (shape_.chunks_inside) {
    for (int piece = 0; piece < pieces_; ++piece)
      for (int chunk = 0; chunk < shape_.degree; ++chunk) place_piece(chunk, piece);
  } else {
    for (int chunk = 0; chunk < shape_.degree; ++chunk)
      for (int piece = 0; piece < pieces_; ++piece) place_piece(chunk, piece);
  }
}

void RowLayout::place_piece(int chunk, int piece) {
  const int64_t begin = elements_;
  for (size_t i = piece_cells_[piece]; i < piece_cells_[piece + 1]; ++i) {
    const Cell& cell = shape_.cells[i];
    start(chunk, static_cast<int64_t>(i)) = elements_;
    elements_ += rows_of(cell.stream, cell.expert, this->chunk(chunk)).count() * shape_.model_dim;
  }
  piece_start_[index(chunk, piece)] = begin;
  piece_size_[index(chunk, piece)] = elements_ - begin;
}

void RowLayout::place_tables_on(MemorySpace& memory, RowReader reader, int64_t most) {
  if (memory.kind() == DeviceKind::cpu) return;
  places_ = std::make_shared<RowPlaces>(*this, memory, reader, most);
}

int64_t RowLayout::chunk_elements(int chunk) const {
  int64_t sum = 0;
  for (int piece = 0; piece < pieces_; ++piece) sum += piece_elements(chunk, piece);
  return sum;
}

void ExpertRows::update(const RowLayout& layout) {
  for (int64_t e = 0; e < layout.experts(); ++e) {
    int64_t& next = first_[e + 1];
    next = first_[e];
    for (int stream = 0; stream < layout.streams(); ++stream) next += layout.count(stream, e);
  }
}

void ExpertRows::chunk_rows(const RowLayout& layout, Rows rows, std::vector<Rows>& out) const {
  for (size_t e = 0; e < out.size(); ++e) {
    out[e] = {first_[e], first_[e]};
    for (int stream = 0; stream < layout.streams(); ++stream) {
      const Rows of = layout.rows_of(stream, static_cast<int64_t>(e), rows);
      out[e].begin += of.begin;
      out[e].end += of.end;
    }
  }
}

void for_each_run(const RowLayout& layout, Rows rows, std::span<const Rows> experts, const VisitRun& visit) {
  for (int64_t e = 0; e < layout.experts(); ++e) for_each_run_of(layout, e, rows, experts[e].begin, visit);
}

void unpack_rows(const RowLayout& layout, Rows rows, TensorView data, TensorView experts, std::span<const Rows> to) {
  const int64_t element = bytes_of(data.dtype()), row_bytes = experts.size(1) * element;
  copy_runs(layout, rows, to, data.bytes(), [&](int64_t from, int64_t row, int64_t count) {
    std::memcpy(experts.as<std::byte>() + row * row_bytes, data.as<std::byte>() + from * element,
                static_cast<size_t>(count * row_bytes));
  });
}

void pack_rows(const RowLayout& layout, Rows rows, TensorView experts, std::span<const Rows> from, TensorView data) {
  const int64_t element = bytes_of(data.dtype()), row_bytes = experts.size(1) * element;
  copy_runs(layout, rows, from, data.bytes(), [&](int64_t to, int64_t row, int64_t count) {
    std::memcpy(data.as<std::byte>() + to * element, experts.as<std::byte>() + row * row_bytes,
                static_cast<size_t>(count * row_bytes));
  });
}

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
  std::vector<int32_t> places(layout.streams() * layout.experts() * most);
  const ExpertRows all(layout);
  std::vector<Rows> at(layout.experts());
  all.chunk_rows(layout, {0, layout.rows()}, at);
  for_each_run(layout, {0, layout.rows()}, at, [&](int64_t from, int64_t row, int64_t count) {
    for (int64_t i = 0; i < count; ++i) places[row + i] = static_cast<int32_t>(from / layout.model_dim() + i);
  });
  return places;
}

}  // namespace

RowPlaces::RowPlaces(const RowLayout& layout, MemorySpace& memory, RowReader by, int64_t max_rows)
    : reader(by), max(max_rows), places(memory, layout.streams() * layout.experts() * max_rows) {
  places.from_host(find_places(layout, reader, max).data());
}

void RowPlaces::send_table(const RowLayout& layout, MemorySpace& memory) {
  require_fits(layout, max);
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
  std::vector<Rows> whole(layout.experts());
  const ExpertRows all(layout);
  all.chunk_rows(layout, {0, layout.rows()}, whole);
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
