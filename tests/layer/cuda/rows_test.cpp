// Rows between their layouts and the experts, on a device against the CPU's.
#include <gtest/gtest.h>

#include "moe/sharding/row_layout.h"
#include "tests/layer/cuda/device_values.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

class CudaRowsTest : public testing::TestWithParam<DType> {
 protected:
  MemorySpace& memory() { return device_->math().memory(); }
  Pair random(std::initializer_list<int64_t> shape, uint64_t stream) { return {shape, GetParam(), memory(), stream}; }
  std::unique_ptr<LayerDevice> device_ = make_test_layer_device();
};

// A rank's rows of its sources, in chunks, to where the experts compute and back.
TEST_P(CudaRowsTest, PacksAndUnpacks) {
  for (const int64_t width : {1, 3, 8, 40, 129})
    for (const int degree : {1, 2, 5})
      for (const int streams : {1, 3}) {
        constexpr int64_t kRows = 7, kExperts = 3;
        RowLayout::Shape shape{kRows, width, streams, kExperts, degree, false, {}};
        for (int stream = 0; stream < streams; ++stream)
          for (int64_t e = 0; e < kExperts; ++e) shape.cells.push_back({stream, e, stream});
        RowLayout layout(std::move(shape));
        layout.place_tables_on(memory(), RowReader::experts, kRows);
        ExpertRows places(layout);
        Pair data = random({layout.elements()}, 1), back = random({layout.elements()}, 2);
        Pair experts = random({places.total(), width}, 3);
        std::vector<Rows> at(kExperts);
        for (int chunk = 0; chunk < degree; ++chunk) {
          places.chunk_rows(layout, layout.chunk(chunk), at);
          device_->unpack(layout, layout.chunk(chunk), data.device, experts.device, at);
          unpack_rows(layout, layout.chunk(chunk), data.reference, experts.reference, at);
          device_->pack(layout, layout.chunk(chunk), experts.device, at, back.device);
        }
        expect_near(experts.device, experts.reference, 0, "where the experts compute");
        expect_near(back.device, data.reference, 0, "and back");
      }
}

std::vector<int32_t> there(const RowLayout& layout) {
  finish_test_device();
  std::vector<int32_t> places(layout.on_device()->places.size());
  layout.on_device()->places.to_host(places.data());
  return places;
}

// Cells with fewer rows than T_rank, more, and none; some streams are not here.
TEST_P(CudaRowsTest, FollowsRunTimeCounts) {
  constexpr int64_t kRows = 5, kExperts = 3, kMax = 11, kWidth = 3;
  for (const int degree : {1, 2, 4, 9})
    for (const int streams : {1, 2, 5})
      for (const bool inside : {false, true}) {
        SCOPED_TRACE(fmt::format("{} chunks of {} streams, inside {}", degree, streams, inside));
        RowLayout::Shape shape{kRows, kWidth, streams + 1, kExperts, degree, inside, {}};
        for (int64_t e = 0; e < kExperts; ++e)
          for (int stream = streams; stream > 0; --stream) shape.cells.push_back({stream, e, static_cast<int>(e)});
        RowLayout layout(shape), by_order(shape);
        layout.place_tables_on(memory(), RowReader::experts, kMax),
            by_order.place_tables_on(memory(), RowReader::order, kMax);
        for (uint64_t seed = 1; seed < 6; ++seed) {
          std::vector<int64_t> counts;
          for (int64_t cell = 0; cell < (streams + 1) * kExperts; ++cell)
            counts.push_back(cell < kExperts ? 0
                                             : static_cast<int64_t>(random_bits(seed, 1, counts.size()) % (kMax + 1)));
          for (RowLayout* l : {&layout, &by_order}) l->set_counts(counts), device_->place(*l);
          EXPECT_EQ(there(by_order), find_places(by_order, RowReader::order, kMax));
          const ExpertRows places(layout);
          std::vector<int32_t> found = there(layout), expected = find_places(layout, RowReader::experts, kMax);
          for (std::vector<int32_t>* all : {&found, &expected}) all->resize(places.total());
          EXPECT_EQ(found, expected);
          Pair data({layout.elements()}, GetParam(), memory(), 1), back({layout.elements()}, GetParam(), memory(), 2);
          Pair experts = random({std::max<int64_t>(places.total(), 1), kWidth}, 3);
          std::vector<Rows> at(kExperts);
          for (int chunk = 0; chunk < degree; ++chunk) {
            places.chunk_rows(layout, layout.chunk(chunk), at);
            device_->unpack(layout, layout.chunk(chunk), data.device, experts.device, at);
            unpack_rows(layout, layout.chunk(chunk), data.reference, experts.reference, at);
            device_->pack(layout, layout.chunk(chunk), experts.device, at, back.device);
          }
          expect_near(experts.device, experts.reference, 0, "where the experts compute");
          expect_near(back.device, data.reference, 0, "and back");
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaRowsTest,
                         testing::Values(DType::float16, DType::bfloat16, DType::float32, DType::float64));

}  // namespace
}  // namespace moe
