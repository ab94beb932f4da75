// Layouts: every row has its own place, blocks go where collectives expect them, packing undoes unpacking, ranks'
// shares cover the whole.
#include "moe/layer/wire.h"

#include <gtest/gtest.h>
#include <set>

#include "moe/layer/tensor.h"

namespace moe {
namespace {

Case small_case(int ep, int esp, int64_t experts) {
  LayerShape layer{.batch = 2, .seq = 6, .model_dim = 4, .hidden = 8, .heads = 2, .experts = experts, .top_k = 1};
  layer.dtype = DType::float64;
  ParallelShape parallel{.nodes = ep, .ranks_per_node = esp, .mp = esp, .ep = ep, .esp = esp};
  return complete(layer, parallel, Rounding::ragged);
}

TEST(WireLayout, GivesEveryRowItsPlaceInsideItsChunkAndPeer) {
  for (const int degree : {1, 2, 3, 4, 9, 40}) {
    const RankShape s = rank_shape(small_case(2, 2, 6), 3);
    const WireLayout wire(s, degree);
    std::set<int64_t> places;
    for (int chunk = 0; chunk < degree; ++chunk) {
      const Rows rows = wire.rows(chunk);
      EXPECT_EQ(wire.chunk_elements(chunk), 2 * wire.block_elements(chunk));
      for (int64_t row = rows.begin; row < rows.end; ++row)
        for (int64_t expert = 0; expert < 6; ++expert) {
          const int64_t at = wire.offset(expert, row) - wire.chunk_offset(chunk);
          EXPECT_EQ(at / wire.block_elements(chunk), expert / 3) << "the block of the rank that holds the expert";
          EXPECT_LE(at + 4, wire.chunk_elements(chunk));
          EXPECT_TRUE(places.insert(wire.offset(expert, row)).second);
        }
    }
    EXPECT_EQ(places.size(), static_cast<size_t>(s.rows * 6));
    EXPECT_EQ(wire.total_rows(), s.rows);
  }
}

TEST(WireLayout, UnpackedRowsLieTogetherWhateverTheDegreeAndPackBack) {
  for (const auto& [ep, esp, experts] : {std::tuple{1, 1, 1}, {1, 1, 3}, {2, 1, 2}, {1, 2, 2}, {2, 2, 4}, {4, 2, 8}}) {
    const RankShape s = rank_shape(small_case(ep, esp, experts), 0);
    const int64_t rows = s.rows * s.sources(), m = s.model_dim(), all = s.experts.count * rows * m;
    std::vector<double> first;
    for (const int degree : {1, 2, 3, 50}) {
      const WireLayout wire(s, degree);
      const Tensor gathered({all}, DType::float64), back({all}, DType::float64);
      const Tensor expert({s.experts.count, rows, m}, DType::float64);
      double* in = gathered.view().as<double>();
      for (int chunk = 0; chunk < degree; ++chunk) {
        // Each element says what it is: expert, row, source, column.
        const int64_t begin = wire.chunk_offset(chunk) * esp, count = wire.rows(chunk).count();
        int64_t at = begin;
        for (int64_t source = 0; source < s.sources(); ++source)
          for (int64_t t = 0; t < count; ++t)
            for (int64_t e = 0; e < s.experts.count; ++e)
              for (int64_t j = 0; j < m; ++j)
                in[at++] =
                    static_cast<double>(((e * s.rows + wire.rows(chunk).begin + t) * s.sources() + source) * m + j);
        const TensorView chunk_in = gathered.view().part(begin, {at - begin});
        unpack_chunk(s, wire.rows(chunk), chunk_in, expert, expert_rows(s, wire.rows(chunk)).begin);
        pack_chunk(s, wire.rows(chunk), expert, expert_rows(s, wire.rows(chunk)).begin,
                   back.view().part(begin, {at - begin}));
      }
      for (int64_t i = 0; i < all; ++i) {
        ASSERT_EQ(expert.view().as<double>()[i], static_cast<double>(i));
        ASSERT_EQ(back.view().as<double>()[i], in[i]);
      }
    }
  }
}

TEST(RankShape, SharesCoverTheWholeOnce) {
  LayerShape layer{.batch = 2, .seq = 6, .model_dim = 20, .hidden = 8, .heads = 5, .experts = 4};
  const ParallelShape parallel{.nodes = 2, .ranks_per_node = 4, .mp = 4, .ep = 2, .esp = 2};
  const Case c = complete(layer, parallel, Rounding::ragged);
  EXPECT_EQ(rank_shape(c, 4).heads, (Share{0, 2, 5}));
  EXPECT_EQ(rank_shape(c, 7).heads, (Share{4, 1, 5}));
  int64_t next = 0;
  for (int rank = 0; rank < 8; ++rank) {
    const RankShape s = rank_shape(c, rank);
    const int64_t ep = rank / 2 % 2, esp = rank % 2;
    EXPECT_EQ(s.tokens, (Share{next, 3, 24}));
    next += s.tokens.count;
    EXPECT_EQ(s.experts, (Share{2 * ep, 2, 4}));
    EXPECT_EQ(s.hidden, (Share{4 * esp, 4, 8}));
    EXPECT_EQ((s.edp * 2 + s.ep) * 2 + s.esp, rank);
    EXPECT_EQ(s.dp * 4 + s.mp, rank);
  }
}

TEST(RankShape, RefusesWhatTheLayerCanNotRun) {
  const Case good = small_case(2, 2, 4);
  const auto refused = [&](auto change, std::string_view naming) {
    Case c = good;
    change(c);
    try {
      rank_shape(c, 0);
      ADD_FAILURE() << "accepted: " << naming;
    } catch (const BadInput& e) {
      EXPECT_NE(std::string(e.what()).find(naming), std::string::npos) << e.what();
    }
  };
  refused([](Case& c) { c.parallel.pp = 2; }, "pp = 2");
  refused([](Case& c) { c.layer.kv_heads = 1; }, "kv-heads = 1");
  refused([](Case& c) { c.layer.ffn = Ffn::mixtral; }, "ffn mixtral");
  refused([](Case& c) { c.layer.capacity_factor.reset(); }, "capacity-factor none");
  refused([](Case& c) { c.rounding = Rounding::exact; }, "capacity-rounding exact");
  refused([](Case& c) { c.layer.dtype = DType::bfloat16; }, "dtype bfloat16");
  EXPECT_THROW(rank_shape(good, 4), BadInput);
}

}  // namespace
}  // namespace moe
