// Layouts: every row has its own place, pieces are what collectives expect, packing undoes unpacking whatever the
// degree and however many rows each cell has.
#include "moe/sharding/row_layout.h"

#include <gtest/gtest.h>
#include <set>

#include "moe/base/random.h"
#include "moe/tensor/tensor.h"

namespace moe {
namespace {

constexpr int64_t kWidth = 3;

// `streams` x `experts` cells, a piece a stream (or a piece an expert); counts of 0 to 2 T_rank and some.
RowLayout layout_of(int64_t rows, int streams, int64_t experts, int degree, bool by_stream) {
  RowLayout::Shape shape{rows, kWidth, streams, experts, degree, false, {}};
  for (int a = 0; a < (by_stream ? streams : static_cast<int>(experts)); ++a)
    for (int b = 0; b < (by_stream ? static_cast<int>(experts) : streams); ++b)
      shape.cells.push_back({by_stream ? a : b, by_stream ? b : a, a});
  return RowLayout(std::move(shape));
}

std::vector<int64_t> any_counts(int64_t rows, int streams, int64_t experts, uint64_t seed) {
  std::vector<int64_t> counts;
  for (uint64_t i = 0; i < static_cast<uint64_t>(streams * experts); ++i) {
    const uint64_t draw = random_bits(seed, 3, i);
    counts.push_back(draw % 4 == 0 ? 0 : static_cast<int64_t>(draw / 4 % static_cast<uint64_t>(2 * rows + 3)));
  }
  return counts;
}

TEST(RowLayout, GivesEveryRowItsOwnPlaceInsideItsChunkAndPiece) {
  for (const int64_t rows : {1, 4, 7})
    for (const int degree : {1, 2, 3, 9})
      for (uint64_t seed = 0; seed < 8; ++seed) {
        RowLayout layout = layout_of(rows, 3, 4, degree, seed % 2 == 0);
        const std::vector<int64_t> counts = any_counts(rows, 3, 4, seed);
        if (seed > 1) layout.set_counts(counts);
        std::set<int64_t> places;
        for (int chunk = 0; chunk < degree; ++chunk)
          for (int stream = 0; stream < 3; ++stream)
            for (int64_t e = 0; e < 4; ++e) {
              const Rows in = layout.rows_of(stream, e, layout.chunk(chunk));
              const int piece = seed % 2 == 0 ? stream : static_cast<int>(e);
              for (int64_t row = in.begin; row < in.end; ++row) {
                const int64_t at = layout.offset(stream, e, row), in_piece = at - layout.piece_offset(chunk, piece);
                EXPECT_TRUE(in_piece >= 0 && in_piece + kWidth <= layout.piece_elements(chunk, piece));
                EXPECT_TRUE(places.insert(at).second);
              }
            }
        int64_t all = 0;
        for (int stream = 0; stream < 3; ++stream)
          for (int64_t e = 0; e < 4; ++e) all += layout.count(stream, e);
        EXPECT_EQ(static_cast<int64_t>(places.size()), all) << "chunks hold every row once";
        EXPECT_EQ(layout.elements(), all * kWidth);
      }
}

TEST(RowLayout, ChunksHaveTheirShareOfEveryCell) {
  RowLayout layout = layout_of(12, 2, 1, 4, true);
  layout.set_counts(std::vector<int64_t>{100, 2});
  for (int chunk = 0; chunk < 4; ++chunk) {
    EXPECT_EQ(layout.rows_of(0, 0, layout.chunk(chunk)).count(), 25);
    EXPECT_LE(layout.rows_of(1, 0, layout.chunk(chunk)).count(), 1);
  }
}

TEST(RowLayout, HoldsAllChunksOfAPieceTogetherIfAsked) {
  RowLayout::Shape shape{6, kWidth, 2, 1, 3, true, {{0, 0, 0}, {1, 0, 1}}};
  const RowLayout layout(shape);
  EXPECT_EQ(layout.piece_offset(0, 1), 6 * kWidth);
  EXPECT_EQ(layout.piece_offset(2, 0), 4 * kWidth);
}

// What lies at the experts' place is the same whatever the degree that brought it there.
TEST(UnpackRows, OrderIsTheSameForEveryDegreeAndPackingUndoesIt) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const int streams = 1 + static_cast<int>(seed % 3);
    const int64_t rows = 5, experts = 3;
    const std::vector<int64_t> counts = any_counts(rows, streams, experts, seed + 50);
    std::vector<double> first;
    for (const int degree : {1, 2, 4, 8}) {
      RowLayout layout = layout_of(rows, streams, experts, degree, true);
      if (seed > 3) layout.set_counts(counts);
      const ExpertRows place(layout);
      const Tensor wire({layout.elements()}, DType::float64), back({layout.elements()}, DType::float64);
      const Tensor at({place.total(), kWidth}, DType::float64);
      for (int stream = 0; stream < streams; ++stream)
        for (int64_t e = 0; e < experts; ++e)
          for (int64_t row = 0; row < layout.count(stream, e); ++row)
            for (int64_t j = 0; j < kWidth; ++j)
              wire.view().as<double>()[layout.offset(stream, e, row) + j] =
                  static_cast<double>(((stream * experts + e) * 100 + row) * kWidth + j + 1);
      std::vector<Rows> to(experts);
      for (int chunk = 0; chunk < degree; ++chunk) {
        place.chunk_rows(layout, layout.chunk(chunk), to);
        unpack_rows(layout, layout.chunk(chunk), wire, at, to);
        pack_rows(layout, layout.chunk(chunk), at, to, back);
      }
      const auto values = [](const Tensor& t) {
        const double* data = t.view().as<double>();
        return std::vector<double>(data, data + t.view().elements());
      };
      EXPECT_EQ(values(back), values(wire));
      if (first.empty()) first = values(at);
      EXPECT_EQ(values(at), first);
    }
  }
}

}  // namespace
}  // namespace moe
