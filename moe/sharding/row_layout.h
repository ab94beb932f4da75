#pragma once
// A layout gives the place of rows at one station on their way to the experts and back.
//
// A group of B L / N_MP tokens has T_rank rows for each expert, which a plan cuts into chunks. With a capacity, each
// row is the place of one token. In a dropless layer an expert gets n rows of a group, and n is known only at run time;
// row i of them counts as row floor(i T_rank / n). So a chunk has an equal share of every expert's rows at any degree.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "moe/device/memory.h"
#include "moe/shape/volumes.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

// The places of a layout's rows, in which a device's kernels look rows up: a row's place is its offset / M.

class RowLayout;

/// The code that looks rows up, and the index of its array of places.
///   order     [stream][expert][row], with `max` rows; the place is -1 if the layout does not have that row
///   experts   [row of ExpertRows]
enum class RowReader : uint8_t { order, experts };

struct RowPlaces {
  /// Finds the places for the layout's present counts. No cell may ever have more than `max_rows` rows.
  RowPlaces(const RowLayout& layout, MemorySpace& memory, RowReader by, int64_t max_rows);
  /// Sends place_table(), from which a kernel finds the places for other counts.
  void send_table(const RowLayout& layout, MemorySpace& memory);

  RowReader reader;
  int64_t max;
  Array<int32_t> places, table;
};

/// Finds the places on the host. Throws WrongResult if a cell has more than `most` rows.
std::vector<int32_t> find_places(const RowLayout& layout, RowReader reader, int64_t most);

/// Returns the table from which a kernel computes places. Its parts, in rows, with cells as [stream][expert]:
///   the number of rows of each cell
///   the first row of each expert in ExpertRows, and the end of the last
///   the first place of each cell in each chunk; -1 if the layout does not have the cell
///   the first row of T_rank of each chunk
std::vector<int32_t> place_table(const RowLayout& layout);

/// Returns the first of a dropless cell's n rows that counts as row `row` or a later one of `rows` (T_rank).
constexpr int64_t first_row(int64_t row, int64_t n, int64_t rows) {
  return n == rows ? row : (row * n + rows - 1) / rows;
}

/// Lays rows out as [chunk][cell][row of the chunk][M]. A cell is the rows of one expert in one stream; a stream is a
/// group of tokens, or the tokens of a rank. Consecutive cells with the same piece number form a piece, which a
/// collective moves as one block. Offsets and sizes are in elements.
class RowLayout {
 public:
  struct Cell {
    int stream = 0;
    int64_t expert = 0;
    int piece = 0;
  };
  struct Shape {
    int64_t rows = 0, model_dim = 0;  // T_rank, M
    int streams = 0;                  // number of streams; some may have no cell here
    int64_t experts = 0;
    int degree = 1;
    bool chunks_inside = false;  // whether pieces contain chunks ([piece][chunk]), as one collective moves all chunks
    std::vector<Cell> cells;     // cells of a chunk, by ascending piece
  };

  RowLayout() = default;
  /// Gives every cell T_rank rows.
  explicit RowLayout(Shape shape);
  /// Gives each cell counts[stream * experts + expert] rows in all later calls. Allocates nothing.
  void set_counts(std::span<const int64_t> counts);

  int degree() const { return shape_.degree; }
  int streams() const { return shape_.streams; }
  int64_t experts() const { return shape_.experts; }
  /// Returns the rows of T_rank in a plan's chunk.
  Rows chunk(int chunk) const { return chunk_rows(shape_.rows, shape_.degree, chunk); }
  bool holds(int stream, int64_t expert = 0) const { return cell_of_[stream * shape_.experts + expert] >= 0; }
  int64_t count(int stream, int64_t expert) const { return counts_[stream * shape_.experts + expert]; }
  /// Returns the rows of a cell that count as `rows` of T_rank.
  Rows rows_of(int stream, int64_t expert, Rows rows) const {
    const int64_t n = count(stream, expert);
    return {first_row(rows.begin, n, shape_.rows), first_row(rows.end, n, shape_.rows)};
  }
  /// Returns the offset of a row of a cell. Rows of one cell and one chunk are consecutive.
  int64_t offset(int stream, int64_t expert, int64_t row) const {
    const int64_t n = count(stream, expert);
    const int64_t place = n == shape_.rows ? row : row * shape_.rows / n;
    const int chunk = chunk_of_[place];
    const Rows in = rows_of(stream, expert, {chunks_[chunk].begin, 0});
    return cell_offset(chunk, stream, expert) + (row - in.begin) * shape_.model_dim;
  }
  /// Returns the offset of a cell's rows of a chunk.
  int64_t cell_offset(int chunk, int stream, int64_t expert) const {
    return start(chunk, cell_of_[stream * shape_.experts + expert]);
  }
  int64_t piece_offset(int chunk, int piece) const { return piece_start_[index(chunk, piece)]; }
  int64_t piece_elements(int chunk, int piece) const { return piece_size_[index(chunk, piece)]; }
  int pieces() const { return pieces_; }
  int64_t chunk_offset(int chunk) const { return piece_offset(chunk, 0); }
  int64_t chunk_elements(int chunk) const;
  int64_t elements() const { return elements_; }
  int64_t rows() const { return shape_.rows; }
  int64_t model_dim() const { return shape_.model_dim; }

  /// Keeps the place of every row in a device's memory, for this reader; does nothing for the host's memory. Copies of
  /// the layout share these places. No cell may ever have more than `most` rows.
  void place_tables_on(MemorySpace& memory, RowReader reader, int64_t most);
  /// Returns the places, for the counts at the time of place_tables_on(); null before place_tables_on(). After
  /// set_counts() they are out of date until LayerDevice::place() is called.
  const std::shared_ptr<RowPlaces>& on_device() const { return places_; }
  const int32_t* places() const { return places_ ? places_->places.data() : nullptr; }

 private:
  size_t index(int chunk, int piece) const { return static_cast<size_t>(chunk * pieces_ + piece); }
  int64_t& start(int chunk, int64_t cell) { return starts_[chunk * shape_.cells.size() + cell]; }
  int64_t start(int chunk, int64_t cell) const { return starts_[chunk * shape_.cells.size() + cell]; }
  void place_piece(int chunk, int piece);

  Shape shape_;
  int pieces_ = 0;
  int64_t elements_ = 0;
  std::vector<int64_t> counts_;                    // [stream][expert]
  std::vector<int64_t> starts_;                    // [chunk][cell]
  std::vector<int64_t> piece_start_, piece_size_;  // [chunk][piece]
  std::vector<size_t> piece_cells_;                // first cell of each piece, and the end
  std::vector<int64_t> cell_of_;                   // [stream][expert]; -1 if the layout does not have the cell
  std::vector<Rows> chunks_;
  std::vector<int> chunk_of_;  // chunk of each row of T_rank
  std::shared_ptr<RowPlaces> places_;
};

/// The order of rows in which the experts compute: expert after expert, each with its rows of all streams in the order
/// of T_rank. A chunk's rows of an expert are therefore contiguous at any degree, and activations that a forward stored
/// with one degree can be read by a backward with another.
class ExpertRows {
 public:
  ExpertRows() = default;
  explicit ExpertRows(const RowLayout& layout) : first_(static_cast<size_t>(layout.experts()) + 1) { update(layout); }
  void update(const RowLayout& layout);
  int64_t total() const { return first_.back(); }
  /// Sets `out`, by expert, to the rows that count as `rows` of T_rank.
  void chunk_rows(const RowLayout& layout, Rows rows, std::vector<Rows>& out) const;

 private:
  std::vector<int64_t> first_;
};

/// Calls visit(element in the layout, row where the experts compute, number of rows) for every run of rows that count
/// as `rows` of T_rank and are consecutive in both; those of expert e begin at row experts[e].begin.
using VisitRun = std::function<void(int64_t element, int64_t row, int64_t count)>;
void for_each_run(const RowLayout& layout, Rows rows, std::span<const Rows> experts, const VisitRun& visit);
/// Copies the rows that count as `rows` of T_rank from the layout to the experts' rows: those of expert e to row
/// to[e].begin of `experts` (any, M) and the rows after it.
void unpack_rows(const RowLayout& layout, Rows rows, TensorView data, TensorView experts, std::span<const Rows> to);
/// Copies the experts' rows back to the layout.
void pack_rows(const RowLayout& layout, Rows rows, TensorView experts, std::span<const Rows> from, TensorView data);

}  // namespace moe
